"""One rank's trace, accounted for."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.diagnose.rank import Rank
from meshwright.diagnose.split.attribution import (
    CHECKPOINT,
    DATALOADER,
    MALLOC,
    PROFILER,
    attributions_of,
    lost_shares,
)
from meshwright.diagnose.split.bars import bars_of
from meshwright.diagnose.split.clock import as_doubles
from meshwright.diagnose.split.collectives import collectives_of
from meshwright.diagnose.split.facts import facts_of, view_of
from meshwright.diagnose.split.host import HostWork, host_of, host_record
from meshwright.diagnose.split.idle import LATE, idle_cause
from meshwright.diagnose.split.instances import instances_of
from meshwright.diagnose.split.intervals import NOTHING, intersect, total
from meshwright.diagnose.split.kernels import kernels_record, top_operators
from meshwright.diagnose.split.matmul import matmuls_of
from meshwright.diagnose.split.principal import principal_of
from meshwright.diagnose.split.shapes import attention_of, moved_of
from meshwright.diagnose.split.steps import PROFILER_STEP, Steps, device_steps, host_steps, steps_of
from meshwright.diagnose.split.unions import one_window, percent, unions_of
from meshwright.diagnose.split.work import Work, work_of

if TYPE_CHECKING:
    from meshwright.diagnose.rank import Attribution, Step, Unions
    from meshwright.diagnose.split.attribution import Owners
    from meshwright.diagnose.trace.columns import Ints, Longs, Trace

BY_STEPS = "first ProfilerStep start to last ProfilerStep end"
BY_MARKS = "first step start to last step end, as the program marks them"
BY_DEVICE = "first device event start to last device event end"


def rank_of(trace: Trace) -> Rank:
    """What is kept of a rank: its steps, split, attribution, kernels, collectives and figures.

    Times are microseconds, exact to the nanosecond. A trace without device events has only the
    host's figures, and "no_gpu_events" for a principal.
    """
    told = as_doubles(trace)
    work = work_of(told)
    steps = steps_of(told, work)
    host = host_of(told)
    held = _described(trace) | _steps(trace, steps)
    if len(trace.device) == 0:
        return Rank(
            **held,
            principal="no_gpu_events",
            cpu=host_record(host, work.busy),
            top_operators=top_operators(trace),
        )
    instances = instances_of(trace, work, steps)
    return Rank(**held, **_split(told, work, steps, host), instances=instances)


def _described(trace: Trace) -> dict[str, Any]:
    """What the file says of itself."""
    meta = trace.meta
    return {
        "file": trace.file,
        "file_bytes": trace.file_bytes,
        "json_bytes": trace.json_bytes,
        "events": trace.events,
        "device_events": len(trace.device),
        "bad_events": trace.bad_events,
        "meta": meta,
        "left": trace.left,
        "gpu": meta.gpu,
        "rank": meta.rank,
        "world_size": meta.world_size,
        "backend": meta.backend,
        "nccl_version": meta.nccl_version,
        "computes_on": "device",
        "device_pids": {str(d): n for d, n in _most(trace.device.device)},
        "streams": _streams(trace),
    }


def _streams(trace: Trace) -> dict[str, int]:
    """Device events on each "device/stream", the most first."""
    device = trace.device
    lanes = (device.device.astype(np.int64) << 32) + device.stream + STREAMS
    told = _most(lanes)
    return {f"{lane >> 32}/{(lane & (2**32 - 1)) - STREAMS}": count for lane, count in told}


STREAMS = 2**31  # added to a stream's number, which may be -1


def _most(column: Longs | Ints) -> list[tuple[int, int]]:
    """Values of a column with their counts, the most frequent first."""
    values, count = np.unique(column, return_counts=True)
    order = np.argsort(-count, kind="stable")
    return list(zip(values[order].tolist(), count[order].tolist(), strict=True))


def _steps(trace: Trace, steps: Steps) -> dict[str, Any]:
    """Steps by the host's clock."""
    by_host = host_steps(steps, trace.origin_ns)
    return {"cpu_steps": by_host, "step_time_us_median": _median(by_host)}


def _median(steps: tuple[Step, ...]) -> float | None:
    return median(step.dur_us for step in steps) if steps else None


def _split(trace: Trace, work: Work, steps: Steps, host: HostWork) -> dict[str, Any]:
    """Everything that needs device events."""
    owners = owners_of(host)
    window = _window(trace, steps)
    (attribution,), idle = attributions_of(
        trace, work, owners, names=window[:1], windows=one_window(*window[1:])
    )
    view = view_of(trace, work, steps, host, window=window[1:], idle=idle)
    lost = lost_shares(attribution.parts_pct)
    preparing = intersect(idle[LATE], host.phases.get("preprocess", NOTHING))
    principal, second = principal_of(
        lost, preprocess_pct=percent(total(preparing), window[2] - window[1])
    )
    return {
        **_windows(trace, work, steps),
        **kernels_record(trace, work),
        "idle_cause": idle_cause(trace, work),
        "cpu": host_record(host, work.busy),
        "collectives": collectives_of(trace, work),
        "gemm": matmuls_of(trace),
        "attention": attention_of(trace),
        "moved": moved_of(trace),
        "attribution": attribution,
        "step_attributions": _step_attributions(trace, work, owners, steps),
        "lost_shares_pct": lost,
        "principal": principal,
        "second": second,
        "bars": bars_of(trace, work, idle),
        "facts": facts_of(view),
    }


def owners_of(host: HostWork) -> Owners:
    """Who may own idle time before the launch that ends it does, in turn."""
    return (
        (DATALOADER, host.dataloader.spans),
        (MALLOC, host.malloc_free.spans),
        (CHECKPOINT, host.phases.get("checkpoint", NOTHING)),
        (PROFILER, host.phases.get("profiler", NOTHING)),
    )


def _step_attributions(
    trace: Trace, work: Work, owners: Owners, steps: Steps
) -> tuple[Attribution, ...]:
    """The parts of each step as the device lived it."""
    windows = (steps.device_start_ns, steps.device_end_ns)
    return attributions_of(trace, work, owners, names=steps.names, windows=windows)[0]


def _window(trace: Trace, steps: Steps) -> tuple[str, int, int]:
    """The window that is attributed: of the steps, else of the device."""
    if len(steps):
        words = BY_STEPS if PROFILER_STEP.search(steps.names[0]) else BY_MARKS
        return words, int(steps.start_ns[0]), int(steps.end_ns.max())
    return BY_DEVICE, int(trace.device.start_ns[0]), int(trace.device.end_ns.max())


def _windows(trace: Trace, work: Work, steps: Steps) -> dict[str, Any]:
    """Unions of the span of the device, of all steps and of each step; the device's steps."""
    origin = trace.origin_ns
    span = one_window(int(trace.device.start_ns[0]), int(trace.device.end_ns.max()))
    held: dict[str, Any] = {"gpu_span": unions_of(work, *span, origin_ns=origin)[0]}
    if not len(steps):
        return held
    by_device = device_steps(steps, origin)
    return held | {
        "step_window": _step_window(work, steps, origin),
        "per_step": unions_of(
            work, steps.start_ns, steps.end_ns, origin_ns=origin, names=steps.names
        ),
        "device_steps": by_device,
        "device_step_time_us_median": _median(by_device),
        "device_events_without_launch_in_trace": int((work.call < 0).sum()),
        "device_events_launched_outside_steps": int(
            ((work.call >= 0) & (steps.of_event < 0)).sum()
        ),
    }


def _step_window(work: Work, steps: Steps, origin: int) -> Unions:
    window = one_window(int(steps.start_ns[0]), int(steps.end_ns.max()))
    (found,) = unions_of(work, *window, origin_ns=origin)
    return replace(found, n_steps=len(steps))


__all__ = ["rank_of"]
