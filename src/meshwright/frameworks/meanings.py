"""The variables that a framework's `interpret` gives beyond its table, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.frameworks.reading import table_values
from meshwright.frameworks.setting import UNKNOWN, Setting, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config


class Meanings:
    """What a configuration means so far: what its table says, and what `given` puts over it."""

    def __init__(self, config: Config, values: Mapping[str, Value]) -> None:
        self.config = config
        self.given: dict[str, Value] = {}
        self._table = values

    def value(self, variable: str, otherwise: Any = None) -> Any:
        """The value of a variable, `otherwise` where there is none or it cannot be read."""
        found = self.given.get(variable) or self._table.get(variable)
        if found is None or found.value is UNKNOWN or found.value is None:
            return otherwise
        return found.value

    def count(self, variable: str, otherwise: int = 1) -> int:
        """A variable that counts something, at least 1."""
        value = self.value(variable, otherwise)
        return value if isinstance(value, int) and value >= 1 else otherwise

    def is_unreadable(self, variable: str) -> bool:
        """Whether a variable is stated, but only running the script would tell its value."""
        found = self.given.get(variable) or self._table.get(variable)
        return found is not None and found.value is UNKNOWN

    def field(self, *names: str) -> Any:
        """The stated value of the first field that is stated, else the first default there is."""
        for name in names:
            if name in self.config.settings:
                return self.config.stated(name)
        for name in names:
            known = self.config.framework.table.find(name, self.config.version)
            if known is not None and known.exists_in(self.config.version):
                return known.default
        return None

    def is_stated(self, *names: str) -> bool:
        """Whether one of the fields is stated."""
        return any(name in self.config.settings for name in names)

    def settings(self, *names: str) -> tuple[Setting, ...]:
        """The settings that state the fields."""
        return tuple(self.config.settings[n] for n in names if n in self.config.settings)

    def stating(self, *variables: str) -> tuple[Setting, ...]:
        """The settings that state the variables."""
        found = (self.given.get(v) or self._table.get(v) for v in variables)
        return tuple(s for value in found if value is not None for s in value.settings)

    def give(self, variable: str, value: Any, *names: str) -> None:
        """Gives a variable its value, stated by those of the fields that are stated."""
        stated = self.settings(*names)
        self.given[variable] = Value(value=value, settings=stated, default=not stated)

    def quote(self, variable: str, value: Any, setting: Setting) -> None:
        """Gives a variable the value that a comment mentions."""
        self.given[variable] = Value(value=value, settings=(setting,))

    def follow(self, variable: str, value: Any, *variables: str) -> None:
        """Gives a variable the value that follows from others."""
        self.given[variable] = Value(value=value, settings=self.stating(*variables))


def heed_remarks(m: Meanings) -> None:
    """Values of settings that only a comment mentions."""
    table = m.config.framework.table
    for setting in m.config.remarked:
        known = table.find(setting.spelled, m.config.version)
        if known is None or not known.variable or m.stating(known.variable):
            continue
        value, reason = known.read(setting.value)
        if not reason:
            m.quote(known.variable, value, setting)


def with_files(config: Config, values: Mapping[str, Value]) -> tuple[Config, Mapping[str, Value]]:
    """The configuration with what files of its own framework state that it refers to.

    A launcher's line and the file that it starts from are one configuration; its own statements
    outweigh the file's. The values are the table's of both together.
    """
    merged = _merged(config)
    return (config, values) if merged is config else (merged, {**values, **table_values(merged)})


def _merged(config: Config) -> Config:
    name = config.framework.name
    own = [_merged(p.config) for p in config.parts if p.config.framework.name == name]
    if not own:
        return config
    others = [p for p in config.parts if p.config.framework.name != name]
    return replace(
        config,
        version=own[-1].version or config.version,
        settings={k: s for part in (*own, config) for k, s in part.settings.items()},
        launch={k: v for part in (*own, config) for k, v in part.launch.items()},
        unknown=tuple(s for part in (config, *own) for s in part.unknown),
        remarked=tuple(s for part in (config, *own) for s in part.remarked),
        parts=(*others, *(p for part in own for p in part.parts)),
    )
