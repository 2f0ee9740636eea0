"""Headers of batch jobs: `#SBATCH`, `#PBS` and `#BSUB` lines."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Setting, Span, Value
from meshwright.frameworks.text.shell.expand import Bit, Variable

if TYPE_CHECKING:
    from meshwright.frameworks.setting import Source

_LINE = pattern(r"^#(?:SBATCH|PBS|COBALT)[ \t]+(?P<rest>[^\n]*)", re.MULTILINE)
_OPTIONS = (
    ("num_nodes", pattern(r"(?P<key>--nodes|-N)[= \t]*(?P<value>\d{1,6})\b(?!-)")),
    ("tasks_per_node", pattern(r"(?P<key>--ntasks-per-node)[= \t]*(?P<value>\d{1,6})\b")),
    ("num_tasks", pattern(r"(?P<key>--ntasks|-n)[= \t]*(?P<value>\d{1,6})\b")),
    (
        "gpus_per_node",
        pattern(
            r"(?P<key>--gpus-per-node|--gres)[= \t]*(?:gpu:)?(?:[\w.-]+:)?(?P<value>\d{1,4})\b"
        ),
    ),
    ("num_gpus", pattern(r"(?P<key>--gpus|-G)[= \t]*(?:[\w.-]+:)?(?P<value>\d{1,6})\b")),
    ("num_nodes", pattern(r"(?P<key>select)=(?P<value>\d{1,6})\b")),
    ("gpus_per_node", pattern(r"(?P<key>ngpus)=(?P<value>\d{1,4})\b")),
)
_SLURM = {
    "num_nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "num_tasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "gpus_per_node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "tasks_per_node": ("SLURM_NTASKS_PER_NODE",),
}


@dataclass(frozen=True, slots=True)
class Headers:
    """The facts of a job's header, and the variables that the scheduler will set from them."""

    values: dict[str, Value] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


def batch_headers(source: Source) -> Headers:
    """What the header of a batch script asks for; empty where there is none."""
    headers = Headers()
    for line in _LINE.finditer(source.text):
        for name, option in _OPTIONS:
            match = option.search(line.group("rest")[:300])
            if match is not None and name not in headers.values:
                _take(headers, source, name, match, line.start("rest"))
    nodes, each = headers.values.get("num_nodes"), headers.values.get("tasks_per_node")
    if nodes and each and "num_tasks" not in headers.values:
        total = str(nodes.value * each.value)
        where = each.settings[0].where
        for name in _SLURM["num_tasks"]:
            headers.variables[name] = Variable((Bit(total, where, where),))
    return headers


def _take(headers: Headers, source: Source, name: str, match: re.Match[str], at: int) -> None:
    where = Span(at + match.start("value"), at + match.end("value"))
    key = Span(at + match.start("key"), at + match.end("key"))
    setting = Setting(
        name=match.group("key"),
        spelled=match.group("key"),
        value=int(match.group("value")),
        source=source,
        key=key,
        where=where,
        whole=Span(key.start, key.start),
    )
    headers.values[name] = Value(value=setting.value, settings=(setting,))
    for variable in _SLURM.get(name, ()):
        headers.variables[variable] = Variable((Bit(match.group("value"), where, where),))
