"""Causes in what stops the loop now and then, and in the profiler and the trace themselves."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.causes.case import LATE, calls_a_step, fact_us
from meshwright.diagnose.causes.exposed import WAIT
from meshwright.diagnose.causes.levers import at_most_replayed, lever
from meshwright.diagnose.causes.proofs import of_parts, of_ranks, time
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.causes.stragglers import MUCH_WAITING, wait_us

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case

HOST = "host"
WORTH = 0.02
STATE_BYTES = 1e6  # of a copy to the host; losses and counts are bytes
FIRST_STEP = 1.5  # times the median of the others
LATE_SHARE = 0.1


def in_late(case: Case, us: float) -> dict[str, float]:
    """A portion of idle time by part, of waits for the call first."""
    takes: dict[str, float] = {}
    for part in LATE:
        takes[part] = min(us - sum(takes.values()), case.part_us(part))
    return takes


def _stall(case: Case, us: float, **found: Any) -> Found | None:
    """Idle time for one reason as a finding."""
    takes = in_late(case, us)
    total = sum(takes.values())
    if case.of_step(total) < WORTH:
        return None
    message: str = found["message"]
    return Found(
        message=message.format(time(total)),
        proofs=(of_parts(case, *LATE, what="launches come late", events=found["events"]),),
        lever=found["lever"],
        takes_us=takes,
    )


@cause(
    "HST902",
    "Training stands still for checkpoints",
    kind=HOST,
    source="PyTorch docs, torch.distributed.checkpoint.async_save; MegaScale (NSDI 24), section "
    "4.4",
)
def synchronous_checkpoint(case: Case) -> Found | None:
    """The device waits until the state is copied and written.

    Shown by: the device idles in torch.save, DCP save or a checkpoint annotation, or copies its
    state to the host with nothing beside.
    Costs: the whole write each time, here as a mean over the traced steps.
    Do: asynchronous and sharded saving (checkpoint_async), a longer interval; Young/Daly says how
    long.
    """
    idle = case.part_us("idle_checkpoint")
    takes = (
        {"idle_checkpoint": idle} if idle else in_late(case, fact_us(case, "checkpoint_us") or 0)
    )
    named = case.of_step(sum(takes.values())) >= WORTH
    takes["exposed_memory"] = _copied_out_us(case)
    total = sum(takes.values())
    if case.of_step(total) < WORTH:
        return None
    idle_parts = ("idle_checkpoint", "exposed_memory") if idle else (*LATE, "exposed_memory")
    return Found(
        message=f"Saving stops training for {time(total)} a step on average.",
        proofs=(
            of_parts(
                case,
                *idle_parts,
                what="the device idles or only copies",
                events=("torch.save", "checkpoint", "Memcpy DtoH"),
            ),
        ),
        lever=lever(
            case,
            "save asynchronously and in shards, less often",
            changes={"workload.loading.checkpoint_async": True},
            free="checkpoint",
        ),
        takes_us=takes,
        confidence="high" if named else "low",
        guards=() if named else ("nothing in the trace names the copies to the host",),
    )


def _copied_out_us(case: Case) -> float:
    """Exposed copies to the host that are too large to be values that are looked at."""
    us, calls = fact_us(case, "d2h_exposed_us"), calls_a_step(case, "d2h_calls")
    size = calls_a_step(case, "d2h_bytes")
    if not us or not calls or not size or size / calls < STATE_BYTES:
        return 0.0
    return min(us, case.part_us("exposed_memory"))


@cause(
    "HST903",
    "Python collects garbage within the step",
    kind=HOST,
    source="Understanding stragglers in LLM training (arXiv 2505.05713), section 5: GC; "
    "Megatron-LM --manual-gc",
)
def garbage_collection(case: Case) -> Found | None:
    """The collector stops the interpreter, on each rank at another moment, and nothing is launched.

    Shown by: the device idles in frames of the garbage collector. Over many ranks some collect in
    every step. Do: gc.disable() and gc.collect() at the same step on all ranks (manual_gc).
    """
    us = fact_us(case, "gc_us")
    if us is None:
        return None
    return _stall(
        case,
        us,
        message="Garbage collection leaves the device idle for {} of each step.",
        events=("gc.collect",),
        lever=lever(
            case,
            "collect garbage at the same step on all ranks",
            changes={"workload.runtime.manual_gc": True},
            free="host_launch",
        ),
    )


@cause(
    "HST904",
    "The profiler itself slows the run",
    kind=HOST,
    source="PyTorch docs, torch.profiler: with_stack and profile_memory have overhead",
)
def profiler_overhead(case: Case) -> Found | None:
    """Recording stacks or memory makes every operator slower on the host, so launches come late.

    Shown by: with_stack or profile_memory in the trace, and late launches. Costs nothing outside of
    the profile: the run is faster than the trace says. Do: trace again without them to see the
    time, with them to see the reason.
    """
    loud = [r.meta for r in case.ranks if r.meta.with_stack or r.meta.profile_memory]
    own = case.part_us("idle_profiler")
    if case.of_step(own) < WORTH and (not loud or case.share(*LATE) < LATE_SHARE):
        return None
    flags = sorted(
        {name for m in loud for name in ("with_stack", "profile_memory") if getattr(m, name)}
    )
    text = f"the trace was taken with {' and '.join(flags)}" if flags else "profiler's own calls"
    return Found(
        message="Part of the host's delay is the profiler's own: " + text + ".",
        proofs=(of_parts(case, *LATE, "idle_profiler", what="late launches and profiler"),),
        lever=lever(case, "trace again without stacks and memory"),
        takes_us={"idle_profiler": own} if own else {},
        confidence="medium",
    )


@cause(
    "HST905",
    "Compilation or warm-up lies in the trace",
    kind=HOST,
    source="PyTorch docs, torch.profiler.schedule: wait and warmup; cuDNN benchmark mode",
)
def warm_up(case: Case) -> Found | None:
    """The first steps compile, tune kernels or load modules, which no later step does.

    Shown by: the device idles in compilation or module loading, or the first step is 1.5 times the
    median of the others. Costs only the start of a run. If it goes on, shapes change and compile
    anew. Do: trace after some warm-up steps; mark dynamic shapes, pad to a few lengths.
    """
    us = fact_us(case, "compile_us")
    takes = in_late(case, us or 0.0)
    compiled = case.of_step(sum(takes.values())) >= WORTH
    first = _first_over_others(case)
    if not compiled and first < FIRST_STEP:
        return None
    text = f"the first step is {first:.1f} times the median of the others"
    return Found(
        message=f"Compilation takes {time(sum(takes.values()))} of a step on average."
        if compiled
        else f"The trace begins before the run is warm: {text}.",
        proofs=(of_ranks(text if first > 1 else "idle in compilation", case.numbers[:1]),),
        lever=lever(case, "trace after warm-up; keep shapes the same, so that nothing recompiles"),
        takes_us=takes if compiled else {},
        confidence="medium",
    )


def _first_over_others(case: Case) -> float:
    steps = max((r.device_steps for r in case.ranks), key=len)
    lengths = [s.dur_us for s in steps]
    return lengths[0] / median(lengths[1:]) if len(lengths) > 2 and median(lengths[1:]) else 0.0


@cause(
    "HST906",
    "Evaluation or logging stops training",
    kind=HOST,
    source="PyTorch performance tuning guide: avoid unnecessary synchronization",
)
def evaluation_or_logging(case: Case) -> Found | None:
    """The loop evaluates, writes metrics or prints while the device waits.

    Shown by: the device idles in such frames or annotations. Costs: that time, as a mean over the
    traced steps. Do: less often, on another process, values read without synchronisation.
    """
    us = (fact_us(case, "evaluation_us") or 0.0) + (fact_us(case, "logging_us") or 0.0)
    return _stall(
        case,
        us,
        message="Evaluation and logging leave the device idle for {} of each step.",
        events=("evaluate", "log"),
        lever=lever(case, "evaluate and log less often, outside of the training process"),
    )


@cause(
    "HST910",
    "No device events in the trace",
    kind=HOST,
    source="PyTorch docs, torch.profiler: ProfilerActivity.CUDA",
    needs=(),
)
def no_device_events(case: Case) -> Found | None:
    """Only the host was recorded, so nothing tells what the device did.

    Shown by: traces without kernels or copies. Usual reasons: activities without CUDA, CUPTI not
    permitted (another profiler, missing rights), a window in which nothing ran.
    Do: activities=[CPU, CUDA], one profiler at a time, a window of whole steps.
    """
    blind = [r for r in case.evidence.ranks if r.attribution is None]
    if not blind:
        return None
    known = tuple(r.rank for r in blind if r.rank is not None)
    return Found(
        message=f"{_traces(len(blind), of=len(case.evidence.ranks))} no device events.",
        proofs=(of_ranks(f"{sum(r.events for r in blind):,} events, all of the host", known),),
        lever=lever(
            case,
            "trace with ProfilerActivity.CUDA over some whole steps",
            command="meshwright train --profile",
        ),
        takes_us={},
        ranks=known if len(blind) < len(case.evidence.ranks) else (),
    )


def _traces(count: int, *, of: int) -> str:
    """ "The trace holds", "All 4 traces hold", "1 of 4 traces holds"."""
    if of == 1:
        return "The trace holds"
    if count == of:
        return f"All {of:,} traces hold"
    return f"{count:,} of {of:,} traces {'holds' if count == 1 else 'hold'}"


@cause(
    "HST912",
    "Ranks are late in turn",
    kind=HOST,
    source="MegaScale (NSDI 24), section 5; SPDL guide: the straggler changes with slow loading",
    needs=("across",),
    said_by=("DAT906", "MOD907"),
)
def rotating_straggler(case: Case) -> Found | None:
    """Everybody waits for the last rank, and it is another one each time.

    Shown by: waits in collectives whose last arriver changes from step to step. It is jitter of
    hosts, not of the network: garbage collection, data loading, other processes.
    Do: collect garbage at the same step everywhere (manual_gc), pin processes to cores
    (numa_bind), let the loader run ahead.
    """
    across, us = case.across, wait_us(case)
    if across is None or not across.straggler_rotates or case.of_step(us) < MUCH_WAITING:
        return None
    last = ", ".join(
        f"rank {r}: {n}" for r, n in list(zip(across.ranks, across.times_last, strict=True))[:8]
    )
    return Found(
        message=f"Ranks wait {time(us)} of each step for one that is late, another each time.",
        proofs=(of_ranks(f"times last: {last}", case.numbers[:8]),),
        lever=lever(
            case,
            "collect garbage at the same step everywhere, pin processes, let the loader run ahead",
            changes={"workload.runtime.manual_gc": True, "workload.runtime.numa_bind": True},
            free="straggler",
        ),
        takes_us={WAIT: at_most_replayed(case, us)},
        confidence="medium",
    )
