"""The stages that a build takes, in order, and the units of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from meshwright.data.stages.layout import Job
    from meshwright.data.work.engines import Make


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage. `units` is asked when the stages before it are done: bytes behind each unit."""

    name: str
    make: Make
    key: Callable[[Job, int], str]
    units: Callable[[Job], Mapping[int, int]]

    def is_done(self, job: Job, number: int) -> bool:
        """Whether a unit is there and fits."""
        return job.store.is_done(self.name, number, key=self.key(job, number))


def stages_of(job: Job) -> tuple[Stage, ...]:
    """Every stage of the job's build."""
    return tuple(_stages(job))


def _stages(job: Job) -> Iterator[Stage]:
    from meshwright.data.stages.scan import key_scan, run_scan
    from meshwright.data.stages.tokenize import key_tokenize, run_tokenize

    build = job.build
    yield Stage(name="scan", make=run_scan, key=key_scan, units=scan_units)
    if build.tokenizer is not None:
        yield Stage(name="tokenize", make=run_tokenize, key=key_tokenize, units=scan_units)


def scan_units(job: Job) -> Mapping[int, int]:
    """The scan units, by stored bytes."""
    return {unit.number: max(1, unit.bytes) for unit in job.units}


def one_unit(_job: Job) -> Mapping[int, int]:
    """A stage that is a single unit."""
    return {0: 1}
