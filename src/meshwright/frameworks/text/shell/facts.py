"""What launchers, job headers and variables of a script say of the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks.setting import UNKNOWN, Setting, Span, Value
from meshwright.frameworks.text.machine import multiplied
from meshwright.frameworks.text.shell.arguments import cutting, written
from meshwright.frameworks.text.shell.expand import Argument

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.frameworks.setting import Source
    from meshwright.frameworks.text.shell.headers import Headers
    from meshwright.frameworks.text.shell.launchers import Fact, Launch
    from meshwright.frameworks.text.shell.run import Run

_VARIABLES = {
    "gpus_per_node": (
        "GPUS_PER_NODE",
        "NPROC_PER_NODE",
        "N_GPUS_PER_NODE",
        "NUM_GPUS_PER_NODE",
        "GPU_PER_NODE",
        "NPUS_PER_NODE",
        "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS_PER_NODE",
    ),
    "num_nodes": ("NNODES", "NUM_NODES", "NODES", "N_NODES", "SLURM_NNODES"),
    "num_gpus": ("WORLD_SIZE", "NUM_GPUS", "N_GPUS", "NGPUS", "NGPU", "TOTAL_GPUS", "GPU_NUM"),
}
_MOST = 10**7


def launch_values(
    source: Source, launches: Sequence[Launch], run: Run, headers: Headers
) -> dict[str, Value]:
    """num_gpus, num_nodes, gpus_per_node and environment, as far as they are stated.

    A command's own options outweigh the job's header, and that the well-known variables.
    """
    found: dict[str, Value] = {}
    for launch in launches:
        for fact in launch.facts:
            _add(found, fact.name, _value(source, fact))
    for name, value in headers.values.items():
        _add(found, name, value)
    _from_tasks(found)
    if any(launch.single_node for launch in launches) and "gpus_per_node" in found:
        found.setdefault("num_nodes", Value(value=1))
    for name, spellings in _VARIABLES.items():
        for spelled in spellings:
            stated_so = _variable(source, run, spelled)
            if stated_so is not None:
                _add(found, name, stated_so)
            elif name == "num_nodes" and _is_unknown(run, spelled):
                _add(found, name, Value(value=UNKNOWN))
    environment = _environment(source, launches, run)
    found = {k: v for k, v in found.items() if k not in ("num_tasks", "tasks_per_node")}
    return {**multiplied(found), **({"environment": environment} if environment else {})}


def _add(found: dict[str, Value], name: str, value: Value) -> None:
    """Keeps the first statement of a fact that can be read."""
    before = found.get(name)
    if before is None or (before.value is UNKNOWN and value.value is not UNKNOWN):
        found[name] = value


def _from_tasks(found: dict[str, Value]) -> None:
    """One task per GPU where more than one task runs on a node and no GPUs are asked for."""
    tasks = found.get("tasks_per_node")
    if tasks is not None and isinstance(tasks.value, int) and tasks.value > 1:
        _add(found, "gpus_per_node", tasks)
    total, nodes = found.get("num_tasks"), found.get("num_nodes")
    if total is None or not isinstance(total.value, int) or "num_gpus" in found:
        return
    count = nodes.value if nodes is not None else 1
    if isinstance(count, int) and total.value > count and "gpus_per_node" not in found:
        found["num_gpus"] = total


def _value(source: Source, fact: Fact) -> Value:
    text = fact.written
    value = int(text) if text and int(text) < _MOST else UNKNOWN
    setting = stated(source, fact.option, fact.value, value)
    return Value(value=value, settings=(setting,))


def stated(source: Source, option: Argument, value: Argument, typed: object) -> Setting:
    """A launcher's option as a setting."""
    name = option.bits[0].text or ""
    return Setting(
        name=name,
        spelled=name,
        value=typed,
        source=source,
        key=option.where,
        where=value.where,
        whole=cutting(source.text, [written(option), written(value)]),
    )


def _variable(source: Source, run: Run, name: str) -> Value | None:
    """A well-known variable as a fact; None where it holds no number."""
    variable = run.scope.variables.get(name)
    text = (variable.text or "").strip() if variable is not None else ""
    if variable is None or not re.fullmatch(r"[1-9]\d{0,6}", text):
        return None
    return Value(value=int(text), settings=(_assigned(source, run, name, Argument(variable.bits)),))


def _is_unknown(run: Run, name: str) -> bool:
    """Whether the script sets a variable to what only its environment knows."""
    variable = run.scope.variables.get(name)
    return variable is not None and variable.items is None and variable.text is None


def _assigned(source: Source, run: Run, name: str, value: Argument) -> Setting:
    place = run.places.get(name, value.where)
    return environment_setting(source, name, value, Span(place.start, place.start))


def environment_setting(source: Source, name: str, value: Argument, key: Span) -> Setting:
    """A variable of the environment as a setting."""
    return Setting(
        name=name,
        spelled=name,
        value=UNKNOWN if value.text is None else value.text,
        source=source,
        key=key,
        where=value.where,
        whole=Span(key.start, key.start),
    )


def _environment(source: Source, launches: Iterable[Launch], run: Run) -> Value | None:
    """The variables that the training processes see, as a mapping with its settings."""
    settings: dict[str, Setting] = {}
    for name in sorted(run.exported):
        variable = run.scope.variables.get(name)
        if variable is not None and variable.items is None and name:
            settings[name] = _assigned(source, run, name, Argument(variable.bits or ()))
    for launch in launches:
        for name, value, key in launch.environment:
            settings[name] = environment_setting(source, name, value, key)
    if not settings:
        return None
    mapping = {name: item.value for name, item in settings.items()}
    return Value(value=mapping, settings=tuple(settings.values()))
