"""What comments say of the checkpoint that a run starts from: "saved: tp 2, pp 4"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from meshwright.frameworks.reading import Config

DEGREES = ("tp", "pp", "dp", "ep", "num_gpus")
_ALSO = {"world": "num_gpus", "world_size": "num_gpus", "gpus": "num_gpus"}
_LABEL = "saved."
_RESUMED = "resume.dp"
_LONGEST = 10  # digits


def saved_values(config: Config) -> dict[str, Value]:
    """`saved_tp` and its kin, where a comment states them in short or as the framework spells them.

    Of several remarks the first counts. `dp` is that of the run that resumes, where only a comment
    states it ("resume: dp 16").
    """
    found: dict[str, Value] = {}
    for setting in config.remarked:
        if setting.name == _RESUMED and (now := _number(setting.value)):
            found.setdefault("dp", Value(value=now, settings=(setting,)))
        if not setting.name.startswith(_LABEL):
            continue
        variable = _variable(config, setting.name.removeprefix(_LABEL))
        value = _number(setting.value)
        if variable and value is not None and value > 0:
            found.setdefault(f"saved_{variable}", Value(value=value, settings=(setting,)))
    return found


def _variable(config: Config, spelled: str) -> str:
    """The degree that a name means, "" for any other."""
    name = spelled.lower()
    name = _ALSO.get(name, name)
    if name in DEGREES:
        return name
    known = config.framework.table.find(spelled, config.version)
    return known.variable if known is not None and known.variable in DEGREES else ""


def _number(value: object) -> int | None:
    """A whole number, which flags give as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < _LONGEST:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
