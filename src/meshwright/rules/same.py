"""A job as a key: what was worked out for one job is found again for the same object."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.plan.job import Job


class Same:
    """Equal to another that holds the same object; jobs that are merely alike differ."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.job is self.job

    def __hash__(self) -> int:
        return id(self.job)
