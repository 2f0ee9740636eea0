"""What one configuration says: its settings by field, and their meaning by variable."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.frameworks.setting import UNKNOWN, Setting, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.base.finding import Finding
    from meshwright.frameworks.framework import Framework
    from meshwright.frameworks.setting import Source
    from meshwright.model.architecture import Model

_LONGEST_NUMBER = 12  # digits of a number in an environment variable
_LIBRARIES = ("CUDA_", "NCCL_", "NVTE_", "PYTORCH_", "TORCH_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of one framework, resolved against its table; the last statement of a field counts.

    `unknown` are keys that no table has, `repeated` earlier statements of a field, `remarked`
    settings that a comment mentions. `parts` are the readings of what belongs to it: files it
    refers to, and settings of frameworks that it runs on (`Framework.companions`). `version` is ""
    when nothing states it; `below` are
    versions of packages that the framework runs on, by name, as far as they are stated.
    """

    framework: Framework
    version: str
    settings: Mapping[str, Setting]
    unknown: tuple[Setting, ...] = ()
    repeated: tuple[Setting, ...] = ()
    launch: Mapping[str, Value] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    remarked: tuple[Setting, ...] = ()
    parts: tuple[Reading, ...] = ()
    below: tuple[tuple[str, str], ...] = ()
    sources: tuple[Source, ...] = ()
    findings: tuple[Finding, ...] = ()

    def stated(self, name: str) -> Any:
        """The stated value of a field, None where it is not stated or cannot be read."""
        setting = self.settings.get(name)
        return None if setting is None or setting.value is UNKNOWN else setting.value

    def value(self, name: str) -> Any:
        """The stated value of a field, or else its default in this version."""
        setting = self.settings.get(name)
        if setting is not None:
            return setting.value
        known = self.framework.table.find(name, self.version)
        return known.default if known is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The meaning of a configuration: values by variable, words as a plan.toml has them.

    Variables named as a field of `Plan`, `Workload`, `Loading`, `Runtime` or `Recipe` set it; the
    shape of the model goes by the names of an HF config.json. `model` is set where a file or a
    known name states it whole.
    """

    config: Config
    values: Mapping[str, Value]
    model: Model | None = None
    findings: tuple[Finding, ...] = ()

    def value(self, variable: str) -> Any:
        """The value of a variable, None where there is none or it cannot be read."""
        found = self.values.get(variable)
        return None if found is None or found.value is UNKNOWN else found.value

    def is_stated(self, variable: str) -> bool:
        """Whether a setting states the variable."""
        found = self.values.get(variable)
        return found is not None and bool(found.settings)

    def settings_of(self, variable: str) -> tuple[Setting, ...]:
        """The settings that state a variable."""
        found = self.values.get(variable)
        return found.settings if found is not None else ()

    @property
    def frameworks(self) -> tuple[Framework, ...]:
        """The framework, and those of its parts."""
        inner = [f for part in self.config.parts for f in part.frameworks]
        return tuple(dict.fromkeys((self.config.framework, *inner)))

    def with_values(self, values: Mapping[str, Value]) -> Reading:
        """A copy in which some variables have other values."""
        return replace(self, values={**self.values, **values})


def table_values(config: Config) -> dict[str, Value]:
    """What the table alone says: the stated value or the default of every field with a variable."""
    values: dict[str, Value] = {}
    for item in config.framework.table.fields:
        if not item.variable:
            continue
        setting = config.settings.get(item.name)
        if setting is not None:
            value = setting.value
            if item.type == "off-flag" and value is not UNKNOWN:
                value = not value
            values[item.variable] = Value(value=value, settings=(setting,))
        elif item.default is not None and item.exists_in(config.version):
            values.setdefault(item.variable, Value(value=item.default, default=True))
    return {
        **environment_values(config.launch),
        **config.launch,
        **values,
        **_of_parts(config, values),
    }


def environment_values(launch: Mapping[str, Value]) -> dict[str, Value]:
    """What the launch's environment tells libraries, under the variables' names in lower case.

    Whole numbers are numbers: CUDA_DEVICE_MAX_CONNECTIONS=1 is `cuda_device_max_connections` 1. A
    script's own variables (TP=2) are none of a library's.
    """
    stated = launch.get("environment")
    if stated is None or not isinstance(stated.value, dict):
        return {}
    found: dict[str, Value] = {}
    for name, value in stated.value.items():
        if not str(name).startswith(_LIBRARIES):
            continue
        settings = tuple(s for s in stated.settings if s.name == name)
        text = value.strip() if isinstance(value, str) else value
        number = isinstance(text, str) and text.isdecimal() and len(text) <= _LONGEST_NUMBER
        found[name.lower()] = Value(value=int(text) if number else text, settings=settings)
    return found


def _of_parts(config: Config, values: Mapping[str, Value]) -> dict[str, Value]:
    """What the parts say and the configuration itself does not state."""
    found: dict[str, Value] = {}
    for part in config.parts:
        for variable, value in part.values.items():
            own = values.get(variable)
            if own is None or (own.default and not value.default):
                found[variable] = value
    return found
