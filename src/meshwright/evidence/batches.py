"""Many rows at once: jobs that share model, cluster, workload and stack as one column of plans."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.evidence.row import Inexpressible
from meshwright.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from meshwright.plan.job import Job

_FIELDS = tuple(f.name for f in fields(Plan) if f.name != "layout")


@dataclass(frozen=True, slots=True)
class Batch:
    """One job whose plan is a column, and the position of each of its rows in the whole."""

    job: Job
    indices: tuple[int, ...]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.indices)


def columns(plans: Sequence[Plan]) -> Plan:
    """One plan of columns from plans of scalars; a field that never differs stays a scalar.

    Raises ValueError for no plans, or plans of different layout, which is not a column.
    """
    if len({plan.layout for plan in plans}) != 1:
        raise ValueError("columns need one or more plans of one layout")
    stacked: dict[str, Any] = {}
    for name in _FIELDS:
        values = [getattr(plan, name) for plan in plans]
        same = all(v == values[0] for v in values)
        stacked[name] = values[0] if same else np.asarray(values)
    return Plan(**stacked, layout=plans[0].layout)


def batches(jobs: Sequence[Job | Inexpressible]) -> tuple[Batch, ...]:
    """The expressible jobs gathered into columns, in order of first appearance."""
    groups: dict[Hashable, list[int]] = {}
    for index, job in enumerate(jobs):
        if not isinstance(job, Inexpressible):
            groups.setdefault(_key(job), []).append(index)
    return tuple(_batch(jobs, indices) for indices in groups.values())


def _key(job: Job) -> Hashable:
    """What rows of one batch share; a GPU is known by its name."""
    cluster = job.cluster
    return (
        job.model,
        (cluster.gpu.name, cluster.num_gpus, cluster.gpus_per_node, cluster.links),
        (job.workload.seq_len, job.workload.global_batch_size),
        job.stack,
        job.plan.layout,
    )


def _batch(jobs: Sequence[Job | Inexpressible], indices: list[int]) -> Batch:
    """One group as a job of columns."""
    members = [job for i in indices if not isinstance(job := jobs[i], Inexpressible)]
    plan = columns([job.plan for job in members])
    return Batch(members[0].with_plan(plan), tuple(indices))


def column(value: Any, length: int) -> Any:
    """A scalar or column as a column of `length` floats."""
    return np.broadcast_to(np.asarray(value, dtype=float), (length,))
