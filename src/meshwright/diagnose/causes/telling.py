"""The diagnosis in a word and in three sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.causes.judge import recoverable_us
from meshwright.diagnose.causes.pipeline import (
    CERTAIN,
    bubble_us,
    slow_worker,
    slow_worker_us,
    uneven_us,
)
from meshwright.diagnose.causes.proofs import time
from meshwright.diagnose.causes.stragglers import ranks_in_words, wait_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Cause, Evidence

ENOUGH = 0.1  # of the step: what is below is no principal bottleneck
BY_PART = {  # word of `principal` for each part of a step
    "idle_dataloader": "data_processing",
    "idle_host_late_launch": "host_launch",
    "idle_launch_latency": "host_launch",
    "exposed_comm": "communication",
    "exposed_memory": "memory_copy",
    "idle_malloc_free": "malloc",
    "idle_device_dependency": "device_dependency",
    "idle_checkpoint": "checkpoint",
    "idle_profiler": "profiler",
}
_PREPROCESSING = "DAT903"


def principal(evidence: Evidence, found: Sequence[Cause]) -> tuple[str, str | None]:
    """The largest loss in a word, and the next, each if it is a tenth of the step.

    Words are those of `Rank.lost_shares_pct` ("data_processing", "host_launch", "communication",
    "memory_copy", "malloc", "device_dependency", "checkpoint"), "straggler" where ranks wait for
    a few, "stage_imbalance" and "pipeline_bubble" of pipelines, "compute" where nothing of that is
    lost, and "no_gpu_events" for traces that account for no time.
    """
    case = case_of(evidence)
    if not case.step_us:
        return "no_gpu_events", None
    if not case.ranks:
        return _of_pipeline(case)
    shares = _lost_shares(case, found)
    told = sorted((n for n, s in shares.items() if s >= ENOUGH), key=lambda n: -shares[n])
    if "straggler" in told:  # its waiting explains the others' communication, whatever is larger
        told = ["straggler", *(n for n in told if n != "straggler")]
    return (told[0] if told else "compute"), (told[1] if len(told) > 1 else None)


def _lost_shares(case: Case, found: Sequence[Cause]) -> dict[str, float]:
    """Shares of a step by word; waits for stragglers apart from communication."""
    shares: dict[str, float] = {}
    for part, word in BY_PART.items():
        shares[word] = shares.get(word, 0.0) + case.share(part)
    preparing = sum(c.share for c in found if c.code == _PREPROCESSING)
    shares["data_processing"] += preparing
    shares["host_launch"] -= preparing
    waits = _straggling(case)
    return shares | {"straggler": waits, "communication": shares["communication"] - waits}


def _straggling(case: Case) -> float:
    """Share of a step that ranks wait for few others, 0 where the last one changes."""
    across = case.across
    if across is None or across.straggler_rotates or across.straggler_rank is None:
        return 0.0
    share = case.of_step(wait_us(case))
    if across.stragglers:
        return share if max(s.share for s in across.stragglers) >= _MOSTLY else 0.0
    last = dict(zip(across.ranks, across.times_last, strict=True))
    return share if last.get(across.straggler_rank, 0) * 2 > across.matched else 0.0


_MOSTLY = 0.35


def _of_pipeline(case: Case) -> tuple[str, str | None]:
    """A fault of a worker first, then uneven stages, then the bubble that was planned."""
    pipeline = case.pipeline
    if pipeline is None:
        return "compute", None
    told = []
    if slow_worker(pipeline) and case.of_step(slow_worker_us(pipeline)) >= ENOUGH:
        told.append("straggler")
    certain = pipeline.stage_max_over_mean >= CERTAIN and not told
    if certain and case.of_step(uneven_us(pipeline)) >= ENOUGH:
        told.append("stage_imbalance")
    if case.of_step(bubble_us(case)) >= ENOUGH:
        told.append("pipeline_bubble")
    if "stage_imbalance" not in told and case.of_step(uneven_us(pipeline)) >= _NOTABLE:
        told.append("stage_imbalance")
    return (told[0] if told else "compute"), (told[1] if len(told) > 1 else None)


_NOTABLE = 0.03


def lost_us(evidence: Evidence, found: Sequence[Cause]) -> float | None:
    """What a step loses: all but compute, and of compute what causes say need not be."""
    case = case_of(evidence)
    if not case.step_us:
        return None
    return max(case.lost_us, sum(c.lost_us for c in found))


def step_us(evidence: Evidence) -> float | None:
    """What a step takes, median over ranks; None where no time is accounted for."""
    return case_of(evidence).step_us or None


def summary(evidence: Evidence, found: Sequence[Cause]) -> tuple[str, ...]:
    """Three sentences: what a step takes and loses, to what most, and what to do about it."""
    case = case_of(evidence)
    if not case.step_us:
        return _nothing_timed(evidence)
    lost = lost_us(evidence, found) or 0.0
    worth = [c for c in found if c.lost_us > 0]
    takes = f"A step takes {time(case.step_us)}"
    if not worth:
        return (
            f"{takes}; {time(lost)} of it ({case.of_step(lost):.0%}) is not compute.",
            "No cause is large enough to name: the run is bound by its computation.",
            "To go faster, compute less or on faster devices: `meshwright plan` compares plans.",
        )
    first = worth[0]
    where = f" on {ranks_in_words(first.ranks)}" if first.ranks else ""
    return (
        f"{takes}; {time(lost)} of it ({case.of_step(lost):.0%}) is lost.",
        f"Most of it, {time(first.lost_us)}, is lost to {first.code}{where}: {first.message}",
        f"Do this: {first.lever.text}; that is worth about {time(recoverable_us(first))} a step "
        f"({case.of_step(recoverable_us(first)):.0%}).",
    )


def _nothing_timed(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.ranks:
        return ("There is no trace of a run here whose time could be accounted for.",)
    return (
        "The traces hold no device events, so they do not tell what a step takes.",
        "Nothing can be said of what is lost: only the host was recorded.",
        "Trace again with ProfilerActivity.CUDA and a few steps after warm-up, on every rank.",
    )
