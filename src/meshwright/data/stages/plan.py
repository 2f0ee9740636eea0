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
    """One stage. `units` is asked when the stages before it are done: what each unit weighs."""

    name: str
    make: Make
    key: Callable[[Job, int], str]
    units: Callable[[Job], Mapping[int, int]]

    def is_done(self, job: Job, number: int) -> bool:
        """Whether a unit is there and fits."""
        return job.store.is_done(self.name, number, key=self.key(job, number))


def stages_of(job: Job) -> tuple[Stage, ...]:
    """Every stage of the job's build that has units; `finish` is left to do then."""
    return tuple(_stages(job))


def _stages(job: Job) -> Iterator[Stage]:
    yield from _text_stages()
    if job.build.tokenizer is not None:
        yield from _token_stages()


def _text_stages() -> Iterator[Stage]:
    """From the input to cleaned text without duplicates."""
    from meshwright.data.stages.decide import decide_units, key_decide, run_decide
    from meshwright.data.stages.lines import key_lines, run_lines
    from meshwright.data.stages.link import key_link, link_units, run_link
    from meshwright.data.stages.scan import key_scan, run_scan
    from meshwright.data.stages.shingle import key_shingle, run_shingle, shingle_units

    yield Stage(name="scan", make=run_scan, key=key_scan, units=scan_units)
    yield Stage(name="lines", make=run_lines, key=key_lines, units=one_unit)
    yield Stage(name="link", make=run_link, key=key_link, units=link_units)
    yield Stage(name="shingle", make=run_shingle, key=key_shingle, units=shingle_units)
    yield Stage(name="decide", make=run_decide, key=key_decide, units=decide_units)


def _token_stages() -> Iterator[Stage]:
    """From text to shards."""
    from meshwright.data.stages.arrange import key_arrange, run_arrange
    from meshwright.data.stages.emit import emit_units, key_emit, run_emit
    from meshwright.data.stages.tokenize import key_tokenize, run_tokenize

    yield Stage(name="tokenize", make=run_tokenize, key=key_tokenize, units=scan_units)
    yield Stage(name="arrange", make=run_arrange, key=key_arrange, units=one_unit)
    yield Stage(name="emit", make=run_emit, key=key_emit, units=emit_units)


def scan_units(job: Job) -> Mapping[int, int]:
    """The scan units, by stored bytes."""
    return {unit.number: max(1, unit.bytes) for unit in job.units}


def one_unit(_job: Job) -> Mapping[int, int]:
    """A stage that is a single unit."""
    return {0: 1}
