"""Measured step times where a source printed only TFLOP/s: undone with its own way of counting."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.evidence.jobs import job_of
from meshwright.evidence.row import Inexpressible
from meshwright.model.flops import flops_per_token

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.evidence.row import Run

_CONVENTIONS = (
    (r"causal-halved", "model_causal"),
    (r"\b96\*|sc21", "sc21_hardware"),
    (r"\b72\*", "korthikanti"),
    (r"full non-causal|maxtext.*full attention", "model_full"),
)


def timed(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs, with a step time from TFLOP/s where they report that and nothing else.

    The source's convention is that of its `flops_convention` column. Rows whose convention is not
    known, or that make no job, stay as they are.
    """
    return tuple(_timed(run) for run in runs)


def _timed(run: Run) -> Run:
    """One run."""
    name = convention_of(run.flops_convention)
    rate = run.measured.tflops_gpu
    if run.step_time_s is not None or rate is None or name is None:
        return run
    job = job_of(run.row)
    if isinstance(job, Inexpressible):
        return run
    work = job.workload
    tokens = work.global_batch_size * work.seq_len
    flops = float(flops_per_token(job.model, work.seq_len, convention=name)) * tokens
    seconds = flops / (rate * 1e12 * job.cluster.num_gpus)
    return replace(run, measured=replace(run.measured, step_time_s=seconds))


def convention_of(text: str) -> str | None:
    """The convention that a description of how a source counts FLOPs means, None when unclear."""
    found = (name for pattern, name in _CONVENTIONS if re.search(pattern, text, re.IGNORECASE))
    return next(found, None)
