"""A rank whole: odd traces, steps, collectives, products, instances and bars."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from columns_made import Rows
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.split.bars import joined_up
from meshwright.diagnose.split.clock import EXACT, doubled
from meshwright.diagnose.split.collectives import bus_factor, bus_rate, label_of, message_bytes
from meshwright.diagnose.split.intervals import Spans
from meshwright.diagnose.split.matmul import product_of
from meshwright.diagnose.split.principal import principal_of
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.split.work import joined
from meshwright.diagnose.trace.columns import Device, Host, Message, Shape

ALLREDUCE = Message(
    collective="allreduce",
    group="3",
    description="tp",
    ranks="[0, 1, 2, 3]",
    group_size=4,
    dtype="BFloat16",
    in_elements=1000,
    out_elements=1000,
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_bf16_s16816gemm_bf16_128x256"


# Odd traces


def test_a_trace_of_nothing_has_no_device_and_says_so() -> None:
    rank = rank_of(Rows().trace())
    assert rank.principal == "no_gpu_events"
    assert rank.gpu_span is None
    assert rank.attribution is None
    assert rank.instances is None
    assert rank.cpu == {}


def test_a_trace_of_the_host_alone_tells_what_the_host_did() -> None:
    rows = Rows()
    rows.mark(0, 100, "ProfilerStep#7")
    rows.mark(10, 30, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    rows.host(40, 90, name="aten::linear")
    rows.host(50, 80, name="aten::addmm")
    rank = rank_of(rows.trace())
    assert rank.principal == "no_gpu_events"
    assert rank.step_time_us_median == 100
    assert rank.cpu["dataloader"] == {"count": 1, "union_us": 20, "gpu_idle_during_us": 20}
    assert [(o.name, o.sum_us) for o in rank.top_operators] == [
        ("aten::addmm", 30),
        ("aten::linear", 20),
    ]


def test_without_steps_the_window_is_what_the_device_spans() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.launched(15, 30, 40)
    rank = rank_of(rows.trace())
    assert rank.attribution is not None
    assert rank.attribution.window == "first device event start to last device event end"
    assert rank.attribution.window_us == 30
    assert rank.device_steps == ()
    assert rank.step_window is None
    assert rank.device_step_time_us_median is None


def test_events_of_one_stream_that_overlap_count_once() -> None:
    rows = Rows()
    rows.work(0, 400, stream=7)
    rows.work(100, 500, stream=7)
    rows.work(100, 500, stream=8)
    rank = rank_of(rows.trace())
    assert rank.gpu_span is not None
    assert rank.gpu_span.compute_us == 500
    assert rank.gpu_span.idle_us == 0
    assert rank.same_stream_overlap_us == 300


def test_a_kernel_before_its_launch_is_no_negative_wait() -> None:
    rows = Rows()
    rows.launched(0, 5, 10)
    rows.launched(30, 20, 25)
    rank = rank_of(rows.trace())
    assert rank.attribution is not None
    assert rank.attribution.parts_us["idle_host_late_launch"] == 10
    assert min(rank.attribution.parts_us.values()) >= 0


def test_several_devices_in_one_file_are_told_apart() -> None:
    rows = Rows()
    for device in (0, 1, 1):
        rows.work(0, 10, device=device, stream=-1)
    rank = rank_of(rows.trace())
    assert rank.device_pids == {"1": 2, "0": 1}
    assert rank.streams == {"1/-1": 2, "0/-1": 1}
    assert rank.facts["devices"] == 2


def test_kernels_of_a_graph_share_its_launch() -> None:
    rows = Rows()
    rows.call(0, 2, name="cudaGraphLaunch", correlation=5)
    for at in (10, 20, 40):
        rows.work(at, at + 5, correlation=5)
    rank = rank_of(rows.trace())
    assert rank.idle_cause["device_dependency_us"] == 15
    assert rank.idle_cause["back_to_back_under_5us_us"] == 5
    assert rank.facts["graph_launches"] == 0  # before the window
    assert rank.facts["graph_wait_us"] == 20


def test_of_a_runtime_call_and_the_drivers_inside_the_outer_one_launches() -> None:
    rows = Rows()
    rows.launched(0, 1, 2)
    rows.call(10, 20, name="cudaLaunchKernel", correlation=9)
    rows.call(12, 19, name="cuLaunchKernel", correlation=9)
    rows.work(25, 30, correlation=9)
    rank = rank_of(rows.trace())
    assert rank.idle_cause["host_late_launch_us"] == 8


# Steps


def test_the_devices_step_follows_what_the_step_launched() -> None:
    rows = Rows()
    rows.mark(0, 100, "ProfilerStep#1")
    rows.mark(100, 200, "ProfilerStep#2")
    rows.launched(10, 20, 150)
    rows.launched(110, 150, 160)
    rows.launched(250, 260, 270)
    rank = rank_of(rows.trace(origin_ns=0))
    first, second = rank.device_steps
    assert (first.start_us, first.dur_us, first.device_lag_us) == (0, 150, 50)
    assert (second.start_us, second.dur_us, second.device_lag_us) == (150, 50, -40)
    assert rank.device_events_launched_outside_steps == 1
    assert rank.attribution is not None
    assert rank.attribution.window_us == 200


@pytest.mark.parametrize(
    "name", ["train_step", "## step 7 ##", "iteration 3", "Iteration=12", "training_step", "step_4"]
)
def test_programs_that_mark_their_own_steps_are_followed(name: str) -> None:
    rows = Rows()
    for n in range(3):
        rows.mark(10 * n, 10 * n + 10, name.replace("7", str(n)))
        rows.mark(10 * n + 1, 10 * n + 3, "forward")
        rows.launched(10 * n + 1, 10 * n + 2, 10 * n + 5)
    rank = rank_of(rows.trace())
    assert len(rank.device_steps) == 3
    assert rank.attribution is not None
    assert rank.attribution.window == (
        "first step start to last step end, as the program marks them"
    )


@pytest.mark.parametrize("name", ["forward", "Optimizer.step#AdamW.step", "step_size_tuning", "x"])
def test_other_marks_are_no_steps(name: str) -> None:
    rows = Rows()
    rows.mark(0, 10, name)
    rows.launched(1, 2, 3)
    assert rank_of(rows.trace()).cpu_steps == ()


def test_of_nested_marks_the_outer_is_the_step() -> None:
    rows = Rows()
    rows.mark(0, 100, "train_step")
    rows.mark(10, 20, "train_step")
    rows.launched(1, 2, 3)
    assert [step.dur_us for step in rank_of(rows.trace()).cpu_steps] == [100]


# Collectives


def test_collectives_alike_are_one_line_with_their_bus_rate() -> None:
    rows = Rows()
    for start, end in ((0, 10), (20, 50), (60, 80)):
        rows.work(start, end, name=NCCL, message=ALLREDUCE)
    rows.work(25, 30, name=GEMM, stream=8)
    (found,) = rank_of(rows.trace()).collectives
    assert (found.count, found.sum_us, found.min_us, found.median_us) == (3, 60, 10, 20)
    assert found.exposed_us == 55
    assert found.bytes == 2000
    assert found.busbw_GBps_at_min == pytest.approx(2000 * 1.5 / 10_000)


def test_a_collective_without_a_message_is_named_by_its_kernel() -> None:
    rows = Rows()
    rows.work(0, 10, name=NCCL)
    (found,) = rank_of(rows.trace()).collectives
    assert found.collective == "kernel:ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    assert found.kernel == NCCL
    assert found.bytes is None
    assert found.busbw_GBps_at_min is None


@pytest.mark.parametrize(
    ("collective", "kernel", "label"),
    [
        ("allreduce", NCCL, "allreduce"),
        ("kernel:ncclKernel_X", "ncclKernel_X(ncclWorkElem)", "ncclKernel_X"),
        ("kernel:void ", "void (anonymous namespace)::reduce<c10::BFloat16, 16>(int)", "reduce"),
        ("kernel:void a::b", "void a::b<float>(float*)", "b"),
        ("kernel:", "", ""),
    ],
)
def test_a_collective_is_told_by_the_function_of_its_kernel(collective, kernel, label) -> None:
    assert label_of(collective, kernel) == label


@pytest.mark.parametrize(
    ("collective", "size", "factor"),
    [
        ("allreduce", 2000, 1.5),
        ("_allgather_base", 8000, 0.75),
        ("allgather_into_tensor_coalesced", 8000, 0.75),
        ("_reduce_scatter_base", 2000, 0.75),
        ("all_to_allv", 2000, 0.75),
        ("broadcast", 2000, 1.0),
        ("send", 2000, 1.0),
    ],
)
def test_bytes_and_bus_factor_are_those_of_nccls_tests(
    collective: str, size: int, factor: float
) -> None:
    message = replace(ALLREDUCE, collective=collective, out_elements=4000)
    assert message_bytes(message) == size
    assert bus_factor(message) == factor


def test_what_a_message_does_not_tell_has_no_rate() -> None:
    assert bus_rate(replace(ALLREDUCE, dtype="no type"), 10) is None
    assert bus_rate(replace(ALLREDUCE, group_size=-1), 10) is None
    assert bus_rate(ALLREDUCE, 0) is None
    assert bus_rate(None, 10) is None


def test_instances_are_named_alike_on_every_rank_and_told_in_absolute_time() -> None:
    send = replace(ALLREDUCE, collective="send", target_rank=1)
    rows, other = Rows(base_ns=500), Rows(base_ns=500)
    rows.mark(0, 100, "ProfilerStep#1")
    rows.launched(1, 10, 20, name=NCCL, message=ALLREDUCE, seq=3)
    rows.launched(2, 30, 40, name=NCCL, message=send)
    rows.launched(3, 15, 18, name=GEMM, stream=8)
    other.work(5, 9, name=NCCL, message=replace(send, target_rank=2))
    mine, theirs = (rank_of(r.trace(origin_ns=1000)).instances for r in (rows, other))
    assert mine is not None
    assert theirs is not None
    assert mine.start_ns.tolist() == [11_500, 31_500]
    assert mine.exposed_ns.tolist() == [7000, 10_000]
    assert mine.seq.tolist() == [3, -1]
    assert mine.step.tolist() == [0, 0]
    assert mine.signatures[mine.signature[1]] == theirs.signatures[0]


# Products


def test_products_are_joined_with_their_kernels_by_external_id() -> None:
    rows = Rows()
    for n in range(3):
        rows.host(n, n + 0.5, name="aten::addmm", external=n, dims=((64,), (128, 32), (32, 64)))
    rows.work(10, 11, name=GEMM, external=0)
    rows.work(11, 12, name="splitKreduce_kernel", external=0)
    rows.work(12, 14, name=GEMM, external=1)
    rows.work(14, 15, name="Memset (Device)", kind=Device.SET, external=1)
    found = rank_of(rows.trace()).gemm
    assert found is not None
    assert (found.ops, found.ops_without_kernel, found.kernel_us) == (3, 1, 4)
    (shape,) = found.shapes
    assert (shape.m, shape.n, shape.k, shape.batch, shape.count) == (128, 64, 32, 1, 2)
    assert shape.tflops == pytest.approx(2 * 2 * 128 * 64 * 32 / 4e-6 / 1e12)


@pytest.mark.parametrize(
    "dims",
    [
        (),
        ((2, 3),),
        ((2, 3), (4, 5)),
        ((2, 3), (3, 4, 5)),
        ((2, 3), ()),
        ("x", "y"),
        ((2, "3"), (3, 4)),
        ((2, -3), (-3, 4)),
    ],
)
def test_shapes_that_are_no_product_are_none(dims: tuple[object, ...]) -> None:
    assert product_of("aten::mm", Shape(dims=dims, types=())) is None


# Parts


@given(
    st.lists(st.integers(0, 50), max_size=20),
    st.lists(st.integers(-5, 60), max_size=20),
    st.sampled_from([1, 10**12]),
)
def test_a_join_finds_what_a_dictionary_finds(
    keys: list[int], wanted: list[int], scale: int
) -> None:
    values = list(range(len(keys)))
    found = joined(
        np.array(keys, dtype=np.int64) * scale,
        np.array(values, dtype=np.int64),
        np.array(wanted, dtype=np.int64) * scale,
    )
    table = dict(zip(keys, values, strict=True))
    assert found.tolist() == [table.get(key, -1) for key in wanted]


@given(st.lists(st.integers(0, 10**6), max_size=20), st.sampled_from([0, EXACT, 17 * 10**17 + 7]))
def test_times_through_doubles_keep_their_order_and_are_close(at: list[int], origin: int) -> None:
    times = np.array(sorted(at), dtype=np.int64)
    found = doubled(times, origin)
    assert (np.diff(found) >= 0).all()
    assert (np.abs(found - times) <= 256).all()
    assert origin or found.tolist() == times.tolist()


@pytest.mark.parametrize(
    ("shares", "preparing", "principal", "second"),
    [
        ({"communication": 30, "host_launch": 20}, 0, "communication", "host_launch"),
        ({"communication": 9.9, "host_launch": 5}, 0, "compute", None),
        ({"communication": 12, "host_launch": 57}, 56, "data_processing", "communication"),
        ({"host_launch": 57}, 90, "data_processing", None),
        ({}, 0, "compute", None),
    ],
)
def test_the_principal_is_the_largest_loss_of_a_tenth(
    shares: dict[str, float], preparing: float, principal: str, second: str | None
) -> None:
    assert principal_of(shares, preprocess_pct=preparing) == (principal, second)


def test_preprocessing_before_the_first_kernel_is_data_processing() -> None:
    rows = Rows()
    rows.mark(0, 100, "ProfilerStep#1")
    name = "transformers/pipelines/video_classification.py(129): preprocess"
    rows.host(2, 60, name=name, kind=Host.PYTHON)
    rows.host(0, 100, name="site/collate.py(1): collate_fn", kind=Host.PYTHON, thread=5)
    rows.launched(62, 63, 100)
    rank = rank_of(rows.trace())
    assert rank.principal == "data_processing"
    assert rank.facts["preprocess_us"] == 58
    assert rank.lost_shares_pct["host_launch"] == pytest.approx(63)


# Bars


def test_bars_are_few_and_cover_the_work() -> None:
    rows = Rows()
    for n in range(4000):
        rows.launched(10 * n, 10 * n + 3, 10 * n + 4 + n % 3)
    rank = rank_of(rows.trace())
    assert rank.bars is not None
    assert len(rank.bars.lane) <= 2000
    compute = rank.bars.lane == rank.bars.lanes.index("compute")
    length = (rank.bars.end_ns - rank.bars.start_ns)[compute].sum()
    assert rank.gpu_span is not None
    assert length >= 1000 * rank.gpu_span.compute_us
    assert (rank.bars.start_ns < rank.bars.end_ns).all()
    assert set(rank.bars.labels) >= {"void at::native::add_kernel()"}


@given(st.lists(st.integers(1, 9), min_size=2, max_size=30), st.integers(1, 12))
def test_joined_spans_are_few_and_hold_the_others(steps: list[int], most: int) -> None:
    edges = np.cumsum(steps[: len(steps) // 2 * 2], dtype=np.int64)
    spans = Spans(edges[::2], edges[1::2])
    found = joined_up(spans, most)
    assert len(found.start) == min(most, len(spans.start))
    assert found.start[0] == spans.start[0]
    assert found.end[-1] == spans.end[-1]
    assert (found.start[1:] > found.end[:-1]).all()


# What is many


def test_sizes_without_end_are_told_together_and_nothing_is_lost() -> None:
    rows = Rows()
    for n in range(900):
        message = replace(ALLREDUCE, collective="all_to_allv", in_elements=n, out_elements=n)
        rows.work(10 * n, 10 * n + 1 + n / 1000, name=NCCL, message=message)
    rank = rank_of(rows.trace())
    assert len(rank.collectives) == 301
    assert sum(c.count for c in rank.collectives) == 900
    assert sum(c.sum_us for c in rank.collectives) == pytest.approx(rank.kernel_time_sum_us)
    together = [c for c in rank.collectives if c.in_nelems == -1]
    assert [(c.count, c.bytes) for c in together] == [(600, None)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=15
    )
)
def test_overlap_is_counted_on_each_stream(events: list[tuple[int, int, int]]) -> None:
    rows = Rows()
    for stream, start, length in events:
        rows.work(start, start + length, stream=stream)
    wanted = 0
    for stream in {s for s, _, _ in events}:
        mine = [(a, n) for s, a, n in events if s == stream]
        wanted += sum(n for _, n in mine) - len({t for a, n in mine for t in range(a, a + n)})
    assert rank_of(rows.trace()).same_stream_overlap_us == wanted


def test_marks_that_a_release_wrote_as_operators_count_too() -> None:
    rows = Rows()
    rows.host(0, 100, name="ProfilerStep#3")
    rows.host(5, 10, name="enumerate(DataLoader)#_Iter.__next__")
    rows.launched(11, 12, 20)
    rank = rank_of(rows.trace())
    assert [step.name for step in rank.cpu_steps] == ["ProfilerStep#3"]
    assert rank.cpu["dataloader"]["count"] == 1
