"""Every nanosecond in one part: against a count of single microseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from columns_made import Rows
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.columns import Device, Host, Trace

MOST = 60
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
events = st.lists(
    st.tuples(
        st.integers(0, MOST),  # start
        st.integers(0, 9),  # length
        st.sampled_from(["compute", "comm", "memory"]),
        st.one_of(st.none(), st.integers(0, 25)),  # launched so long before; None: not in the trace
    ),
    min_size=1,
    max_size=12,
)
loading = st.lists(st.tuples(st.integers(0, MOST), st.integers(0, 9)), max_size=3)
steps = st.lists(st.integers(1, 20), min_size=0, max_size=4)


def made(
    device: list[tuple[int, int, str, int | None]],
    loader: list[tuple[int, int]],
    lengths: list[int],
) -> Trace:
    rows = Rows()
    for n, (start, length, kind, ago) in enumerate(device, 1):
        name = NCCL if kind == "comm" else "ampere_sgemm_32x32_nn"
        kinds = {"memory": Device.COPY}
        rows.work(
            start,
            start + length,
            name=name,
            kind=kinds.get(kind, Device.KERNEL),
            correlation=n,
            stream=n % 3,
        )
        if ago is not None:
            rows.call(max(start - ago, 0), max(start - ago, 0) + 1, correlation=n)
    for start, length in loader:
        rows.mark(start, start + length, "enumerate(DataLoader)#_Iter.__next__")
    at = 3
    for n, length in enumerate(lengths):
        rows.mark(at, at + length, f"ProfilerStep#{n}")
        at += length
    return rows.trace()


def counted(trace: Trace, start: int, end: int) -> dict[str, int]:
    """Parts of a window, one microsecond after the other."""
    device = [
        (int(a) // 1000, int(b) // 1000, int(kind), NCCL in trace.names[name])
        for a, b, kind, name in zip(
            trace.device.start_ns,
            trace.device.end_ns,
            trace.device.kind,
            trace.device.name,
            strict=True,
        )
    ]
    parts: dict[str, int] = {}
    for t in range(start, end):
        on = [(kind, comm) for a, b, kind, comm in device if a <= t < b]
        if any(kind == Device.KERNEL and not comm for kind, comm in on):
            part = "compute"
        elif any(comm and kind == Device.KERNEL for kind, comm in on):
            part = "exposed_comm"
        elif on:
            part = "exposed_memory"
        elif _loads(trace, t):
            part = "idle_dataloader"
        else:
            part = "idle"
        parts[part] = parts.get(part, 0) + 1
    return parts


def _loads(trace: Trace, t: int) -> bool:
    operators = trace.operators
    return any(
        trace.names[name].startswith("enumerate") and a <= 1000 * t < b
        for a, b, name in zip(operators.start_ns, operators.end_ns, operators.name, strict=True)
    )


@settings(max_examples=200)
@given(events, loading, steps)
def test_parts_are_those_of_single_microseconds(
    device: list[Any], loader: list[Any], lengths: list[int]
) -> None:
    trace = made(device, loader, lengths)
    rank = rank_of(trace)
    found = rank.attribution
    assert found is not None
    low = 3 if lengths else min(start for start, *_ in device)
    high = low + sum(lengths) if lengths else max(a + n for a, n, *_ in device)
    wanted = counted(trace, low, high)
    parts = dict(found.parts_us)
    for part in ("compute", "exposed_comm", "exposed_memory", "idle_dataloader"):
        assert parts.pop(part) == wanted.get(part, 0)
    assert parts.pop("idle_malloc_free") == 0
    assert sum(parts.values()) == wanted.get("idle", 0)
    assert found.window_us == high - low


@settings(max_examples=200)
@given(events, loading, steps)
def test_every_window_sums_exactly_and_nothing_is_negative(
    device: list[Any], loader: list[Any], lengths: list[int]
) -> None:
    rank = rank_of(made(device, loader, lengths))
    assert rank.attribution is not None
    for found in (rank.attribution, *rank.step_attributions):
        nanoseconds = [round(1000 * us) for us in found.parts_us.values()]
        assert sum(nanoseconds) == round(1000 * found.window_us)
        assert min(nanoseconds) >= 0
    assert len(rank.step_attributions) == len(lengths)
    for unions in filter(None, (rank.gpu_span, rank.step_window, *rank.per_step)):
        assert unions.busy_us + unions.idle_us == pytest.approx(unions.window_us)
        assert min(unions.idle_us, unions.exposed_comm_us, unions.exposed_memory_us) >= 0
        assert unions.compute_us <= unions.busy_us <= unions.window_us
    assert all(step.dur_us >= 0 for step in rank.device_steps)
    cause = rank.idle_cause
    parts = [v for k, v in cause.items() if k.endswith("_us") and k != "sum_us"]
    assert sum(parts) == pytest.approx(cause["sum_us"])
    assert min(parts) >= 0
    assert rank.same_stream_overlap_us >= 0


@settings(max_examples=60)
@given(events, loading, st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_steps_that_fill_the_window_divide_its_work(
    device: list[Any], loader: list[Any], lengths: list[int]
) -> None:
    """Work and data loading of the device's steps, which follow each other, sum over them."""
    rank = rank_of(made(device, loader, lengths))
    first, last = rank.device_steps[0], rank.device_steps[-1]
    trace = made(device, loader, lengths)
    start = round(first.start_us - trace.origin_ns / 1000)
    end = round(last.start_us + last.dur_us - trace.origin_ns / 1000)
    wanted = counted(trace, start, end)
    for part in ("compute", "exposed_comm", "exposed_memory", "idle_dataloader"):
        found = sum(a.parts_us[part] for a in rank.step_attributions)
        assert found == pytest.approx(wanted.get(part, 0))


def parts(rows: Rows) -> dict[str, float]:
    found = rank_of(rows.trace()).attribution
    assert found is not None
    return {name: us for name, us in found.parts_us.items() if us}


def test_a_late_launch_is_late_up_to_its_call_and_latency_after_it() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.launched(50, 58, 60)
    assert parts(rows) == {"compute": 12, "idle_host_late_launch": 30, "idle_launch_latency": 8}


def test_queued_work_waits_for_the_device() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.launched(1, 24, 30)
    rows.launched(2, 50, 51)
    assert parts(rows) == {
        "compute": 17,
        "idle_back_to_back_under_5us": 4,
        "idle_device_dependency": 20,
    }


def test_a_launch_that_the_trace_lacks_is_said() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.work(30, 31, correlation=77)
    assert parts(rows) == {"compute": 11, "idle_unknown_launch_not_in_trace": 10}
    assert rank_of(rows.trace()).facts["without_launch_share"] == pytest.approx(1 / 11)


def test_what_follows_the_last_kernel_is_the_tail() -> None:
    rows = Rows()
    rows.mark(0, 100, "ProfilerStep#1")
    rows.launched(5, 10, 20)
    assert parts(rows)["idle_tail_after_last_kernel"] == 80


def test_the_loader_comes_first_then_the_allocator_then_checkpoints() -> None:
    rows = Rows()
    rows.launched(0, 1, 10)
    rows.mark(12, 20, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    rows.call(18, 30, name="cudaMalloc")
    rows.mark(25, 50, "checkpoint#Keeper.save")
    rows.launched(55, 60, 61)
    assert parts(rows) == {
        "compute": 10,
        "idle_dataloader": 8,
        "idle_malloc_free": 10,
        "idle_checkpoint": 20,
        "idle_host_late_launch": 7,
        "idle_launch_latency": 5,
    }


def test_pinning_memory_of_the_host_is_no_allocation_on_the_device() -> None:
    rows = Rows()
    rows.launched(0, 1, 10)
    rows.call(12, 20, name="cudaHostAlloc")
    rows.call(20, 25, name="cudaMalloc")
    rows.launched(26, 30, 31)
    assert parts(rows)["idle_malloc_free"] == 5
    assert rank_of(rows.trace()).facts["malloc_calls"] == 1


def test_work_that_was_queued_waits_for_no_checkpoint() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.launched(15, 50, 60)  # in the device's queue before its gap began
    rows.work(80, 90)  # its launch is not in the trace
    rows.launched(95, 110, 120)
    rows.mark(22, 92, "checkpoint#Keeper.save")
    found = parts(rows)
    assert found["idle_device_dependency"] == 30
    assert found["idle_unknown_launch_not_in_trace"] == 20
    assert found["idle_checkpoint"] == 2
    assert found["idle_host_late_launch"] == 3
    assert found["idle_launch_latency"] == 15


def test_the_profiler_owns_what_it_holds_up_but_never_the_tail() -> None:
    rows = Rows()
    rows.mark(0, 200, "ProfilerStep#1")
    rows.launched(0, 1, 10)
    stop = "torch/profiler/profiler.py(730): stop"
    rows.host(20, 40, name=stop, kind=Host.PYTHON)
    rows.launched(50, 60, 61)
    rows.host(70, 200, name=stop, kind=Host.PYTHON)
    found = parts(rows)
    assert found["idle_profiler"] == 20
    assert found["idle_tail_after_last_kernel"] == 139


def test_a_window_of_no_length_is_no_division_by_zero() -> None:
    rows = Rows()
    rows.work(5, 5)
    rank = rank_of(rows.trace())
    assert rank.attribution is not None
    assert rank.attribution.window_us == 0
    assert set(rank.attribution.parts_pct.values()) == {0.0}
    assert rank.principal == "compute"


def test_times_since_1970_give_the_same_sums() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.launched(50, 58, 60)
    found = rank_of(rows.trace(origin_ns=1_712_195_495_502_094_432)).attribution
    assert found is not None
    assert sum(round(1000 * us) for us in found.parts_us.values()) == round(1000 * found.window_us)
    assert found.parts_us["compute"] == pytest.approx(12, abs=0.6)
    assert np.isclose(found.window_us, 50, atol=0.6)
