"""What stood in for what a source does not state, where it is written into the target's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.words import shown

if TYPE_CHECKING:
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading

_OPTIONS = {"model": "--model", "num_gpus": "--gpus and --nodes"}


def assumed_findings(drafted: Drafted, again: Reading) -> list[Finding]:
    """CFG301: a warning for every value that the written files, read `again`, only guess."""
    stood_in = {
        name: value
        for name, value in _stand_ins(drafted).items()
        if name in drafted.missing and (name in _OPTIONS or again.is_stated(name))
    }
    return [_assumed(name, value) for name, value in stood_in.items()]


def _stand_ins(drafted: Drafted) -> dict[str, Any]:
    job = drafted.job
    return {
        "model": f"{job.model.num_hidden_layers} layers of {job.model.hidden_size}",
        "num_gpus": int(job.cluster.num_gpus),
        "seq_len": int(job.workload.seq_len),
        "micro_batch_size": int(job.plan.row(0).micro_batch_size),
        "global_batch_size": int(job.workload.global_batch_size),
    }


def _assumed(name: str, value: Any) -> Finding:
    option = _OPTIONS.get(name, f"--set {name}=...")
    return Finding(
        code="CFG301",
        severity=Severity.WARNING,
        message=f"assumed: {name} = {shown(value)}, not stated in the source",
        key=name,
        value=value,
        hint=f"give {option}, or correct it in what is written",
    )
