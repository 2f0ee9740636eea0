"""A job as a key: what was worked out for one job is found again for the same object."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from meshwright.plan.plan import Plan

if TYPE_CHECKING:
    from meshwright.plan.job import Job

_PLAN_FIELDS = tuple(f.name for f in fields(Plan))


class Same:
    """Equal to another that holds the same object; jobs that are merely alike differ."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.job is self.job

    def __hash__(self) -> int:
        return id(self.job)


class Alike:
    """Equal to another with the same objects around it and a plan of equal values.

    `job` holds the plan as Python scalars, so that NumPy's scalars do not tell jobs apart.
    """

    __slots__ = ("_key", "job")

    def __init__(self, job: Job) -> None:
        self.job = job.with_plan(job.plan.row(0))
        values = tuple(getattr(self.job.plan, name) for name in _PLAN_FIELDS)
        self._key = (id(job.model), id(job.cluster), id(job.workload), job.stack, values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)
