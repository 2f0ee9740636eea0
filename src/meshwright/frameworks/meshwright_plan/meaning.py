"""What a plan.toml means beyond its table, and how a job is written as one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidUnit
from meshwright.base.units import parse_tokens
from meshwright.frameworks.framework import Expressed
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.setting import UNKNOWN
from meshwright.plan.batch import sequences_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Value
    from meshwright.plan.job import Job

_SECTIONS = ("model", "cluster", "workload", "plan")
_ENVIRONMENT = "workload.runtime.environment."
_LENGTHS = {"train_tokens": "workload.train_tokens", "packed_mean_len": "workload.packed_mean_len"}


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Variables that the table does not give: amounts with a unit, the machine."""
    m = Meanings(config, values)
    _machine(m)
    _batch(m)
    for variable, name in _LENGTHS.items():
        if m.is_stated(name):
            m.give(variable, _tokens(m.field(name)) or UNKNOWN, name)
    if m.is_stated("model.path"):
        m.give("model_name", m.field("model.path"), "model.path")
    stated = [n for n in config.settings if n.startswith(_ENVIRONMENT)]
    if stated:
        pairs = {n.removeprefix(_ENVIRONMENT): str(m.field(n)) for n in stated}
        m.give("environment", pairs, *stated)
    return m.given


def _machine(m: Meanings) -> None:
    """GPU, how many a node has, and how many there are."""
    text = m.field("cluster.gpu")
    if not isinstance(text, str):
        return
    gpu, _, count = text.partition(":")
    m.give("gpu_name", gpu, "cluster.gpu")
    if count.isdecimal() and len(count) < 6:
        m.give("gpus_per_node", int(count), "cluster.gpu")
        total = int(count) * m.count("num_nodes")
        m.give("num_gpus", total, "cluster.gpu", "cluster.nodes")


def _batch(m: Meanings) -> None:
    """Sequences a step, stated as such or in tokens."""
    stated = m.field("workload.global_batch")
    seq_len = m.value("seq_len")
    if isinstance(stated, int) and not isinstance(stated, bool):
        m.give("global_batch_size", stated, "workload.global_batch")
    elif isinstance(stated, str) and isinstance(seq_len, int) and seq_len > 0:
        tokens = _tokens(stated)
        batch = sequences_for(tokens, seq_len) if tokens else UNKNOWN
        m.give("global_batch_size", batch, "workload.global_batch")


def _tokens(value: Any) -> float | None:
    """A positive number of tokens, None for anything else."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        tokens = float(parse_tokens(value))
    except InvalidUnit:
        return None
    return tokens if tokens > 0 else None


def whole(config: Config) -> Job | None:
    """The job of a file with all four sections; InvalidInput with every problem of it."""
    from meshwright.base.locate import parse
    from meshwright.plan.file import job_of

    source = config.sources[0]
    present = {name.split(".", 1)[0] for name in config.settings}
    if not source.text or not present >= {*_SECTIONS}:
        return None
    document = parse(source.text, syntax=source.syntax, file=source.file)
    return job_of(document, folder=Path(source.file).parent)


def express(job: Job, _version: str) -> Expressed:
    """The plan.toml of a job, as settings by dotted name and as a text."""
    from meshwright.plan.file import write_job

    text = write_job(job)
    return Expressed(settings=_leaves(tomllib.loads(text)), text=text)


def _leaves(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by dotted name; lists stay whole."""
    found: dict[str, Any] = {}
    for name, value in node.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
