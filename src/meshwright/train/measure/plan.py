"""The ranks of a plan, measured one after the other."""

from __future__ import annotations

import logging
import time
import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.plan.job import num_microbatches
from meshwright.train.assemble import Blueprint
from meshwright.train.building import slices_for
from meshwright.train.measure.compare import lines_of
from meshwright.train.measure.extend import case_of, error_of_extension, measured, pipeline_rank
from meshwright.train.model.configuration import configuration_from_keys
from meshwright.train.numbers import numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.plan.job import Job
    from meshwright.train.measure.compare import Line
    from meshwright.train.measure.extend import Case
    from meshwright.train.measure.rank import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One rank: what was read, beside the prediction.

    `layers_read` are those of each stage that were run, `layers` those that it has.
    `extension_error` is the largest relative error of the extension at a third depth, None where
    it was not asked for.
    """

    rank: int
    stage: int
    reading: Reading
    lines: tuple[Line, ...]
    layers: tuple[int, ...]
    layers_read: tuple[int, ...]
    extension_error: float | None
    cpu_s: float


def measure_ranks(
    job: Job,
    config: Mapping[str, Any],
    ranks: Sequence[int],
    *,
    extend: bool = True,
    check: bool = False,
) -> tuple[Measured, ...]:
    """Memory and traffic of global ranks of a job's plan, on fake tensors in this process.

    `config` has the keys of the model's config.json. With `extend` few layers and micro-batches are
    run and the rest follows; `check` runs a third depth and compares.
    """
    blueprint = Blueprint(
        config=configuration_from_keys(config),
        model=job.model,
        plan=job.plan,
        numbers=replace(numbers_of(job.plan), fp8=False),  # torchao's layers need a device
        seq_len=job.workload.seq_len,
        cp_slices=slices_for(job.plan),
        routing="balanced",
    )
    with _quietly():
        return tuple(_rank(job, blueprint, rank, extend=extend, check=check) for rank in ranks)


def _rank(job: Job, blueprint: Blueprint, rank: int, *, extend: bool, check: bool) -> Measured:
    start_s = time.process_time()
    stage = pipeline_rank(job.plan, rank)
    count = int(num_microbatches(job))
    case = case_of(blueprint, rank=rank, microbatches=count, extend=extend)
    reading = measured(case, extend=extend)
    return Measured(
        rank=rank,
        stage=stage,
        reading=reading,
        lines=lines_of(reading, job, stage=stage),
        layers=tuple(depth.wanted for depth in case.depths),
        layers_read=_read(case),
        extension_error=error_of_extension(case) if check else None,
        cpu_s=time.process_time() - start_s,
    )


def _read(case: Case) -> tuple[int, ...]:
    return tuple(depth.high for depth in case.depths)


@contextmanager
def _quietly() -> Iterator[None]:
    """What torch says of fake collectives is not for users."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
