"""Whatever the columns hold, a rank comes of them, and its figures are sound."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from columns_made import Rows
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.columns import Device, Host, Message
from meshwright.report.diagnosis.record import plain

times = st.tuples(st.integers(0, 300), st.integers(0, 60))
numbers = st.integers(-1, 6)
kernels = st.sampled_from(
    [
        "ncclDevKernel_AllGather_RING_LL",
        "void deep_ep::intranode::notify_dispatch<8>()",
        "ampere_bf16_s16816gemm_bf16_128x256",
        "ampere_sgemm_32x32_nn",
        "cunn_SoftMaxForward<8>",
        "at::native::rsqrt_kernel_cuda",
        "at::native::MulFunctor<float>",
        "Memcpy HtoD (Pageable -> Device)",
        "\x00<script>",
        "",
    ]
)
messages = st.one_of(
    st.none(),
    st.builds(
        Message,
        collective=st.sampled_from(["", "allreduce", "_allgather_base", "send", "\x1b[31m"]),
        group=st.sampled_from(["", "3"]),
        group_size=st.sampled_from([-1, 0, 1, 2, 10**30]),
        dtype=st.sampled_from(["", "Float", "NoType"]),
        in_elements=st.sampled_from([-1, 0, 7, 10**40]),
        out_elements=st.sampled_from([-1, 0, 7]),
        target_rank=numbers,
    ),
)
host_names = st.sampled_from(
    [
        "ProfilerStep#1",
        "ProfilerStep#2",
        "train_step",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "Optimizer.step#AdamW.step",
        "autograd::engine::evaluate_function: MmBackward0",
        "aten::linear",
        "aten::mm",
        "aten::bmm",
        "aten::item",
        "checkpoint#save",
        "FSDP::all_gather",
        "torch/profiler/profiler.py(1): stop",
        "x.py(3): preprocess",
        "<built-in function collect>",
    ]
)
sizes = st.one_of(
    st.just(()),
    st.lists(st.lists(st.sampled_from([-1, 0, 4, 10**30]), max_size=3).map(tuple), max_size=3).map(
        tuple
    ),
)
calls = st.sampled_from(
    ["cudaLaunchKernel", "cudaGraphLaunch", "cudaMalloc", "cudaStreamSynchronize", "cuModuleLoad"]
)


@st.composite
def traces(draw: Any) -> Any:
    rows = Rows()
    for start, length in draw(st.lists(times, max_size=10)):
        rows.work(
            start,
            start + length,
            name=draw(kernels),
            kind=draw(st.sampled_from(Device)),
            correlation=draw(numbers),
            external=draw(numbers),
            stream=draw(numbers),
            device=draw(st.integers(-1, 2)),
            message=draw(messages),
            seq=draw(numbers),
            size=draw(st.sampled_from([-1, 0, 10**12])),
        )
    for start, length in draw(st.lists(times, max_size=6)):
        rows.call(start, start + length, name=draw(calls), correlation=draw(numbers))
    for start, length in draw(st.lists(times, max_size=10)):
        rows.host(
            start,
            start + length,
            name=draw(host_names),
            kind=draw(st.sampled_from(Host)),
            thread=draw(st.integers(0, 2)),
            external=draw(numbers),
            dims=draw(sizes),
        )
    return rows.trace(origin_ns=draw(st.sampled_from([0, 10**12, 1_712_195_495_502_094_432])))


def figures(value: Any) -> Any:
    """All numbers of a record, with the names that lead to them."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from ((f"{field.name}.{k}", v) for k, v in figures(getattr(value, field.name)))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from ((f"{key}.{k}", v) for k, v in figures(item))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from figures(item)
    elif isinstance(value, np.ndarray):
        yield "", 0
    elif isinstance(value, int | float):
        yield "", value


SIGNED = ("device_lag_us", "in_nelems", "out_nelems", "group_size", "rank", "ranks", "start_us")


@settings(max_examples=300, deadline=None)
@given(traces())
def test_figures_are_numbers_and_never_negative(trace: Any) -> None:
    rank = rank_of(trace)
    for key, value in figures(rank):
        assert math.isfinite(value), key
        if not any(name in key.split(".") for name in SIGNED) and "messages" not in key:
            assert value >= 0, key
    json.dumps(plain(rank), allow_nan=False)
    if rank.attribution is not None:
        for found in (rank.attribution, *rank.step_attributions):
            parts = sum(round(1000 * us) for us in found.parts_us.values())
            assert parts == round(1000 * found.window_us)


@settings(max_examples=50, deadline=None)
@given(traces())
def test_the_same_columns_give_the_same_figures(trace: Any) -> None:
    assert plain(rank_of(trace)) == plain(rank_of(trace))
