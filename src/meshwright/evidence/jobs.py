"""A row's settings as a `Job`, or the reason why they do not make one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.evidence.clusters import cluster_of
from meshwright.evidence.habits import habits_of, stack_of
from meshwright.evidence.models import model_of
from meshwright.evidence.plans import plan_of
from meshwright.evidence.row import Inexpressible
from meshwright.plan.job import Job, Workload

if TYPE_CHECKING:
    from meshwright.evidence.row import Row


def job_of(row: Row) -> Job | Inexpressible:
    """The job that a row describes; from its settings alone, never from what was measured."""
    try:
        model = model_of(row, habits_of(row))
        return Job(
            model=model,
            cluster=cluster_of(row),
            workload=Workload(
                seq_len=row.needed("seq_len"), global_batch_size=row.needed("global_batch")
            ),
            plan=plan_of(row, model),
            stack=stack_of(row),
        )
    except MeshwrightError as error:
        return Inexpressible(error.message)
