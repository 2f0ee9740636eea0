"""A launcher's line and the file it starts from are one configuration of one framework."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.frameworks.reading import table_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value


def whole(config: Config, values: Mapping[str, Value]) -> tuple[Config, Mapping[str, Value]]:
    """The configuration with the settings of its parts of the same framework, and their values.

    What the configuration itself states counts more than what its parts state.
    """
    merged = _merged(config)
    if merged is config:
        return config, values
    return merged, {**values, **table_values(merged)}


def _merged(config: Config) -> Config:
    name = config.framework.name
    own = [_merged(p.config) for p in config.parts if p.config.framework.name == name]
    if not own:
        return config
    others = [p for p in config.parts if p.config.framework.name != name]
    return replace(
        config,
        settings={k: s for part in (*own, config) for k, s in part.settings.items()},
        launch={k: v for part in (*own, config) for k, v in part.launch.items()},
        unknown=tuple(s for part in (config, *own) for s in part.unknown),
        remarked=tuple(s for part in (config, *own) for s in part.remarked),
        parts=(*others, *(p for part in own for p in part.parts)),
    )
