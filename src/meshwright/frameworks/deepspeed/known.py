"""JSON files that frameworks ship, by name, for a reference to one that is not at hand.

Sources: LLaMA-Factory examples/deepspeed (0.9.5) and axolotl deepspeed_configs (0.19).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.base.shipped import shipped
from meshwright.frameworks.reading import Config, Reading, table_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.framework import Framework
    from meshwright.frameworks.setting import Setting, Value

_STAGE = pattern(r"(?:zero|stage|(?:^|[_-])z)[_-]?([0-3])(?!\d)", re.IGNORECASE)
_AWAY = pattern(r"off_?load", re.IGNORECASE)
_AUTO = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("gradient_clipping", "bf16.enabled", "fp16.enabled"),
)


def known_reading(framework: Framework, setting: Setting) -> Reading | None:
    """What a file that is not there says, by its name; None for a name that tells nothing.

    The settings stand where the name does.
    """
    contents = known_contents(setting.value)
    if not contents:
        return None
    table = framework.table
    stated = {}
    for name, value in contents.items():
        known = table.find(name)
        field = known.name if known is not None and not known.name.endswith(".*") else name
        stated[field] = setting.replace(name=field, spelled=name, value=value)
    config = Config(framework=framework, version="", settings=stated)
    values: dict[str, Value] = table_values(config)
    return Reading(config=config, values=values | dict(framework.interpret(config, values)))


def shipped_reading(setting: Setting) -> Reading | None:
    """What a file says that a framework ships, for one that is not there."""
    from meshwright.frameworks.framework import framework

    known = _stem(setting.value) in _shipped()
    return known_reading(framework("deepspeed"), setting) if known else None


def known_contents(file: Any) -> Mapping[str, Any]:
    """The settings of a shipped file, or those that the words of a name promise."""
    stem = _stem(file)
    return _shipped().get(stem) or _promised(stem)


def _stem(file: Any) -> str:
    """The name of a file without folder and ending, in lower case."""
    path = file.replace("\\", "/") if isinstance(file, str) else ""
    return PurePosixPath(path).stem.lower()


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    import json

    text = shipped(__package__).joinpath("known.json").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return found


def _promised(stem: str) -> Mapping[str, Any]:
    """ "zero3_offload" is stage 3 with everything on the host, the rest left to the trainer."""
    found = _STAGE.search(stem)
    if found is None:
        return {}
    stage = int(found[1])
    contents: dict[str, Any] = dict.fromkeys(_AUTO, "auto")
    contents["zero_optimization.stage"] = stage
    if _AWAY.search(stem) and stage:
        contents["zero_optimization.offload_optimizer.device"] = "cpu"
        if stage == 3:
            contents["zero_optimization.offload_param.device"] = "cpu"
    return contents
