"""The diagnosis in a word and in three sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.units import format_bytes
from meshwright.base.words import ranks_in_words
from meshwright.diagnose.causes.case import TAIL, case_of
from meshwright.diagnose.causes.judge import ENOUGH, RULES_THE_REST, recoverable_us
from meshwright.diagnose.causes.pipeline import (
    CERTAIN,
    bubble_us,
    slow_worker,
    slow_worker_us,
    uneven_us,
)
from meshwright.diagnose.causes.proofs import time
from meshwright.diagnose.causes.stragglers import mostly, stage_wait_us, wait_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Cause, Evidence
    from meshwright.diagnose.logs.noun import MemorySnapshot
    from meshwright.diagnose.pipeline.noun import Pipeline

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
    "idle_evaluation": "evaluation",
}
_PREPROCESSING = "DAT903"
_IN_TURN = ("HST912", "DAT906")
_SLOW_RANKS = ("CMP905", "DAT909", "HST907")
_UNEVEN_STAGES = ("MOD905", "MOD906")


def principal(evidence: Evidence, found: Sequence[Cause]) -> tuple[str, str | None]:
    """The largest loss in a word, and the next, each if it is a tenth of the step.

    Words are those of `Rank.lost_shares_pct` ("data_processing", "host_launch", "communication",
    "memory_copy", "malloc", "device_dependency", "checkpoint"), "straggler (rank 7)" where ranks
    wait for one (no rank where it changes), "stage_imbalance" and "pipeline_bubble" where stages
    wait for each other, those of `Pipeline.principal` for a pipeline's operations, "compute" where
    nothing is lost, and "no_gpu_events" for traces that account for no time.
    """
    case = case_of(evidence)
    if not case.step_us:
        return "no_gpu_events", None
    if not case.ranks and case.pipeline is not None:
        return _of_pipeline(case.pipeline, case)
    shares = _lost_shares(case, found)
    told = sorted((n for n, s in shares.items() if s >= ENOUGH), key=lambda n: -shares[n])
    if "straggler" in told and shares["straggler"] >= RULES_THE_REST * shares[told[0]]:
        told = ["straggler", *(n for n in told if n != "straggler")]
    words = [_straggler_in_words(case) if n == "straggler" else n for n in told]
    return (words[0] if words else "compute"), (words[1] if len(words) > 1 else None)


def _straggler_in_words(case: Case) -> str:
    rank = case.across.straggler_rank if case.across else None
    if case.across and case.across.straggler_rotates:
        return "straggler"
    if case.across and case.across.stragglers:
        rank = max(case.across.stragglers, key=lambda s: s.share).rank
    return "straggler" if rank is None else f"straggler (rank {rank})"


def _lost_shares(case: Case, found: Sequence[Cause]) -> dict[str, float]:
    """Shares of a step by word; waits for stragglers and stages apart from communication."""
    shares: dict[str, float] = {}
    for part, word in BY_PART.items():
        shares[word] = shares.get(word, 0.0) + case.share(part)
    preparing = sum(c.share for c in found if c.code == _PREPROCESSING)
    shares["data_processing"] += preparing
    shares["host_launch"] -= preparing
    waits, stages = _straggling(case, found), case.of_step(stage_wait_us(case))
    shares["communication"] -= waits + stages
    slow = sum(c.share for c in found if c.code in _SLOW_RANKS)
    if slow > waits:  # neighbours in the pipeline wait for a slow rank, too
        waits, stages = slow, max(0.0, stages + waits - slow)
    uneven = sum(c.share for c in found if c.code in _UNEVEN_STAGES)
    if uneven and not slow:  # then the late ranks are those of the heavy stage
        waits, stages = 0.0, stages + waits
    return shares | {
        "straggler": waits,
        "stage_imbalance": stages if uneven >= 0.5 * stages else 0.0,
        "pipeline_bubble": stages if uneven < 0.5 * stages else 0.0,
    }


def _straggling(case: Case, found: Sequence[Cause]) -> float:
    """Share of a step that ranks wait for few others, or for one of them in turn."""
    across = case.across
    in_turn = sum(c.share for c in found if c.code in _IN_TURN)
    if across is None or across.straggler_rotates or across.straggler_rank is None:
        return in_turn
    share = case.of_step(wait_us(case))
    if across.stragglers:
        most = max(s.share for s in across.stragglers)
        return share if most >= mostly(len(across.ranks)) else in_turn
    last = dict(zip(across.ranks, across.times_last, strict=True))
    return share if last.get(across.straggler_rank, 0) * 2 > across.matched else in_turn


def _of_pipeline(pipeline: Pipeline, case: Case) -> tuple[str, str | None]:
    """A fault of a worker first, then uneven stages, then the bubble that was planned."""
    if pipeline.principal:
        return pipeline.principal, None
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
    takes = f"{_unit(case)} {time(case.step_us)}"
    if not worth:
        rest = max(case.step_us - case.part_us("compute"), 0.0)
        return (
            f"{takes}; {time(rest)} of it ({case.of_step(rest):.0%}) is not compute.",
            *_nothing_to_name(case),
        )
    first = worth[0]
    return (
        f"{takes}; {time(lost)} of it ({case.of_step(lost):.0%}) is lost.",
        f"{_portion(first, worth, lost)} {first.code}{_where(first)}: {first.message}",
        f"Do this: {first.lever.text}; that is worth about {time(recoverable_us(first))} a step "
        f"({case.of_step(recoverable_us(first)):.0%}).",
    )


def _unit(case: Case) -> str:
    if case.ranks and not any(r.cpu_steps or r.device_steps for r in case.ranks):
        return "No step is marked, so all that was traced counts as one: it takes"
    return "A step takes"


def _nothing_to_name(case: Case) -> tuple[str, str]:
    """What such a run is: bound by its computation, or not traced while it worked."""
    if case.share(TAIL) > 0.5:
        return (
            f"No cause is large enough to name: {time(case.part_us(TAIL))} of it come after all "
            "work of the device, mostly while the profiler stops.",
            "Trace again, some whole steps: schedule(wait, warmup, active of 3 or more).",
        )
    if case.share("compute") < 0.5:
        return (
            "No cause is large enough to name: what is lost is spread over many small parts.",
            "See what has the largest shares below, or trace more steps on every rank.",
        )
    return (
        "No cause is large enough to name: the run is bound by its computation.",
        "To go faster, compute less or on faster devices: `meshwright plan` compares plans.",
    )


def _portion(cause: Cause, worth: Sequence[Cause], lost: float) -> str:
    """How much of what is lost goes to a cause: "Most of it, 35.3 ms, goes to"."""
    if cause.lost_us > 0.5 * lost:
        return f"Most of it, {time(cause.lost_us)}, goes to"
    if all(cause.lost_us >= c.lost_us for c in worth):
        return f"The largest part of it, {time(cause.lost_us)}, goes to"
    if cause.ranks:  # others wait for these
        return f"{time(cause.lost_us)} of it and what follows from it go to"
    if all(recoverable_us(cause) >= recoverable_us(c) for c in worth):
        return f"The part that gives most back, {time(cause.lost_us)}, goes to"
    return f"The largest fault, {time(cause.lost_us)} of it, is"


def _where(cause: Cause) -> str:
    return f" on {ranks_in_words(cause.ranks)}" if cause.ranks else ""


def _nothing_timed(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.ranks and evidence.memory:
        return _of_memory(evidence.memory)
    if not evidence.ranks:
        return ("There is no trace of a run here whose time could be accounted for.",)
    return (
        "The traces hold no device events, so they do not tell what a step takes.",
        "Nothing can be said of what is lost: only the host was recorded.",
        "Trace again with ProfilerActivity.CUDA and a few steps after warm-up, on every rank.",
    )


def _of_memory(snapshots: Sequence[MemorySnapshot]) -> tuple[str, ...]:
    """What the fullest of the snapshots says, where nothing else was given."""
    fullest = max(snapshots, key=lambda s: s.peak_bytes)
    predicted = fullest.predicted_bytes.get("peak")
    beside = f", {format_bytes(predicted)} are predicted" if predicted else ""
    most, size = next(iter(fullest.by_category.items()), ("", 0))
    share = size / fullest.peak_bytes if fullest.peak_bytes else 0.0
    return (
        f"Device {fullest.device} holds {format_bytes(fullest.peak_bytes)} at the peak{beside}.",
        f"Most of it, {format_bytes(size)} ({share:.0%}), is {most}."
        if most
        else "What it consists of was not recorded.",
        "To learn what a step takes, give traces of torch.profiler as well.",
    )
