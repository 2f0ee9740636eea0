"""What a plan that does not fit is short of, when, by how much, and the nearest plans that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.plan.job import shard_group
from meshwright.plan.plan import Recompute
from meshwright.rules.costed import is_laid, least_gpus, moments_of
from meshwright.rules.predicted import figure, gib, outside_bytes, peak_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.cost.memory.moments import Moment
    from meshwright.plan.job import Job

_WHEN = {
    "load": "while the model is built",
    "first_forward": "in the first forward pass and loss",
    "first_backward": "in the first backward pass",
    "optimizer_step": "in the first optimizer step, which creates the optimizer's moments",
    "forward": "in the forward passes and loss after the first step",
    "backward": "in the backward passes after the first step",
    "checkpoint": "while a checkpoint is saved",
}
_STEP = ("first_forward", "first_backward", "optimizer_step", "forward", "backward")


def largest_terms(moment: Moment, *, count: int = 4) -> str:
    """The largest terms of a moment's fullest stage: "weights 12.5 GiB, gradients 6.3 GiB"."""
    terms = list(moment.terms[moment.stage].items())[:count]
    return ", ".join(f"{name} {gib(value)}" for name, value in terms)


def shortage(job: Job) -> str:
    """Stage, moment, bytes needed and at hand on the GPU, the largest terms, and what would fit."""
    room = job.cluster.gpu.memory_bytes
    if not is_laid(job):
        return (
            f"peak of {gib(peak_bytes(job))} and {gib(outside_bytes(job))} outside the allocator, "
            f"on a GPU of {gib(room)}"
        )
    found = moments_of(job)
    steps = [found.named(name) for name in _STEP]
    first = next((m for m in steps if m.fullest_bytes + found.outside_bytes > room), None)
    moment = first or max(steps, key=lambda m: m.fullest_bytes)
    more = least_gpus(job)
    fits = f"; fits on {more} GPUs" if more and more > job.cluster.num_gpus else ""
    return (
        f"stage {moment.stage} needs {gib(moment.fullest_bytes + found.outside_bytes)} "
        f"{_WHEN[moment.name]} on a GPU of {gib(room)}: {largest_terms(moment)}, outside the "
        f"allocator {gib(found.outside_bytes)}{fits}"
    )


def remedies(job: Job, fits: Callable[[Job], Any]) -> dict[str, tuple[Any, ...]]:
    """The nearest values by field that alone make the plan fit, else one set of them together.

    Tried are more sharding, more recompute, smaller micro-batches, the optimizer on the host.
    """
    alone: dict[str, tuple[Any, ...]] = {}
    for name, value in _candidates(job):
        if name not in alone and _holds(_changed(job, {name: value}), fits):
            alone[name] = (value,)
    return alone or _together(job, fits)


def _holds(job: Job, fits: Callable[[Job], Any]) -> bool:
    """Whether a changed plan fits the GPU as asked, and the host."""
    host = figure(job, "host_bytes") <= job.cluster.host.memory_bytes
    return bool(np.all(fits(job)) and np.all(host))


def _together(job: Job, fits: Callable[[Job], Any]) -> dict[str, tuple[Any, ...]]:
    """The strongest values of the first few fields that fit together, {} if all are not enough."""
    changes: dict[str, Any] = {}
    strongest = dict(_candidates(job))
    for name, value in strongest.items():
        changes[name] = value
        if _holds(_changed(job, changes), fits):
            return {field: (own,) for field, own in changes.items()}
    return {}


def _candidates(job: Job) -> Iterator[tuple[str, Any]]:
    """Changes that save memory, the mildest of a field first."""
    plan = job.plan
    if int(shard_group(plan)) > 1:
        yield from (("zero_stage", stage) for stage in range(int(plan.zero_stage) + 1, 4))
    if not int(plan.recompute_layers):
        kinds = (Recompute.SELECTIVE, Recompute.FULL)
        yield from (("recompute", kind) for kind in kinds if int(kind) > int(plan.recompute))
    size = int(plan.micro_batch_size)
    while size > 1:
        size //= 2
        yield "micro_batch_size", size
    if float(plan.offload_optimizer) < 1:
        yield "offload_optimizer", 1.0


def _changed(job: Job, changes: dict[str, Any]) -> Job:
    """The job under a plan with other values, as NumPy scalars."""
    numbers = {
        name: np.float64(value) if isinstance(value, float) else np.int64(int(value))
        for name, value in changes.items()
    }
    return job.with_plan(job.plan.replace(**numbers))
