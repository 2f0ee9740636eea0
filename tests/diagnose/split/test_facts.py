"""Further figures, each with a trace that shows it."""

from __future__ import annotations

import pytest
from columns_made import Rows

from meshwright.diagnose.split.facts import FACTS
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.columns import Device, Host, Message

GEMM = "ampere_bf16_s16816gemm_bf16_128x256"
NCCL = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
NODE = "autograd::engine::evaluate_function: MmBackward0"


def facts(rows: Rows) -> dict[str, float]:
    return dict(rank_of(rows.trace()).facts)


def everything() -> Rows:
    """A trace that shows most of what can be told."""
    rows = Rows()
    rows.mark(0, 400, "ProfilerStep#1")
    rows.mark(400, 800, "ProfilerStep#2")
    rows.mark(1, 20, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    rows.mark(300, 350, "Optimizer.step#AdamW.step")
    rows.mark(360, 380, "checkpoint#Keeper.save")
    rows.mark(385, 390, "evaluation#Evaluation.loss")
    rows.host(100, 200, name=NODE)
    rows.host(110, 150, name="aten::linear")
    rows.mark(30, 40, "FSDP::all_gather")
    rows.launched(25, 30, 60, name="ncclDevKernel_AllGather_RING_LL")
    rows.launched(105, 106, 130, name=GEMM)
    rows.launched(115, 130, 140, name=GEMM)
    rows.launched(210, 215, 240, name=NCCL)
    rows.launched(310, 312, 320, name="multi_tensor_apply_kernel<AdamFunctor>")
    rows.launched(500, 510, 520, name="void deep_ep::intranode::notify_dispatch<8>()")
    rows.launched(600, 601, 620, name="Memcpy HtoD (Pageable -> Device)", kind=Device.COPY)
    rows.allocations.append((5, 100, 1000, 4000))
    return rows


def test_every_figure_is_named() -> None:
    found = facts(everything())
    assert set(found) <= set(FACTS)
    assert len(found) > 30


def test_figures_of_the_passes() -> None:
    found = facts(everything())
    assert found["optimizer_kernels"] == found["optimizer_fused_kernels"] == 1
    assert found["optimizer_device_us"] == 8
    assert found["optimizer_idle_us"] == 42
    assert found["recompute_us"] == 10
    assert found["backward_device_us"] == 34
    assert found["grad_reduce_tail_us"] == 25


def test_figures_of_communication() -> None:
    found = facts(everything())
    assert found["collective_calls"] == 3
    assert found["gather_exposed_us"] == 30
    assert found["dispatch_wait_us"] == 10


def test_figures_of_waiting() -> None:
    found = facts(everything())
    assert found["checkpoint_us"] == 20
    assert found["evaluation_us"] == 5
    assert found["loader_in_process_us"] == 19
    assert found["loader_calls"] == 1
    assert "gc_us" not in found
    assert "preprocess_us" not in found


def test_figures_of_copies_and_memory() -> None:
    found = facts(everything())
    assert found["h2d_calls"] == found["h2d_pageable_calls"] == 1
    assert found["h2d_exposed_us"] == found["h2d_pageable_us"] == 19
    assert found["reserved_at_peak_bytes"] == 4000
    assert found["allocated_peak_bytes"] == 1000


def test_a_healthy_trace_shows_none_of_it() -> None:
    rows = Rows()
    rows.launched(0, 10, 20, name=GEMM)
    rows.launched(1, 20, 30, name=GEMM)
    found = facts(rows)
    assert found["sync_idle_us"] == found["malloc_calls"] == found["h2d_exposed_us"] == 0
    assert found["unfused_attention_us"] == found["unfused_norm_us"] == found["loss_us"] == 0
    assert "under_comm_slowdown" not in found
    assert "recompute_us" not in found


@pytest.mark.parametrize(
    ("name", "kind"),
    [("cudaStreamSynchronize", None), ("aten::item", Host.OPERATOR)],
)
def test_a_launch_after_a_wait_is_the_waits(name: str, kind: Host | None) -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    if kind is None:
        rows.call(2, 21, name=name)
    else:
        rows.host(2, 21, name=name, kind=kind)
        rows.call(3, 20.5, name="cudaStreamSynchronize")
    rows.launched(40, 45, 50)
    found = facts(rows)
    assert found["sync_calls"] == 1
    assert found["sync_idle_us"] == 25


def test_a_wait_that_begins_when_all_is_done_holds_nothing_up() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.call(30, 31, name="cudaStreamSynchronize")
    rows.launched(40, 45, 50)
    assert facts(rows)["sync_idle_us"] == 0


def test_long_gaps_behind_launches_are_told_apart() -> None:
    rows = Rows()
    rows.launched(0, 10, 20)
    rows.launched(500, 800, 900)  # 780 us: an operator or two may take that
    rows.launched(1500, 3000, 3100)  # 600 us until it is launched, 1500 until it starts
    rows.launched(3050, 4500, 4600)  # launched in time: the gap is the device's own
    assert facts(rows)["long_gap_us"] == 2100


def test_attention_in_parts_is_softmax_with_its_batched_products() -> None:
    rows = Rows()
    for n, (name, op) in enumerate(
        [
            (GEMM, "aten::bmm"),
            ("cunn_SoftMaxForward<8>", ""),
            (GEMM, "aten::bmm"),
            (GEMM, "aten::mm"),
        ]
    ):
        if op:
            rows.host(n, n + 0.4, name=op, external=n)
        rows.work(100 + 10 * n, 105 + 10 * n, name=name, external=n if op else -1)
    assert facts(rows)["unfused_attention_us"] == 15


def test_a_softmax_alone_is_no_attention() -> None:
    rows = Rows()
    rows.host(0, 1, name="aten::mm", external=1)
    rows.work(10, 20, name=GEMM, external=1)
    rows.work(20, 25, name="cunn_SoftMaxForward<8>")
    assert facts(rows)["unfused_attention_us"] == 0


def test_norms_in_parts_are_found_around_their_root() -> None:
    rows = Rows()
    names = [
        "pow_tensor_scalar_kernel_impl",
        "MeanOps<float>",
        "rsqrt_kernel_cuda",
        "MulFunctor<float>",
    ]
    for n, name in enumerate(names):
        rows.work(10 * n, 10 * n + 5, name=f"at::native::{name}")
    for n in range(10, 20):
        rows.work(10 * n, 10 * n + 5, name="at::native::MulFunctor<float>")
    assert facts(rows)["unfused_norm_us"] == pytest.approx(30)


def test_kernels_beside_communication_are_held_against_themselves() -> None:
    rows = Rows()
    message = Message(collective="allreduce", dtype="Float", in_elements=10, group_size=2)
    for n in range(6):
        rows.host(n, n + 0.5, name="aten::mm", external=n, dims=((8, 8), (8, 8)))
        length = 30 if n % 2 else 20
        rows.work(100 * n, 100 * n + length, name=GEMM, external=n)
        if n % 2:
            rows.work(100 * n - 5, 100 * n + 40, name=NCCL, stream=9, message=message)
    found = facts(rows)
    assert found["under_comm_us"] == 90
    assert "under_comm_slowdown" not in found  # each has a shape of its own: none is alike
    rows.shapes[1:] = []
    for operator in rows.operators:
        operator["shape"] = 0
    assert facts(rows)["under_comm_slowdown"] == pytest.approx(1.5)


def test_the_queue_is_what_is_launched_and_has_not_begun() -> None:
    rows = Rows()
    for n in range(10):
        rows.launched(n, 100 + 10 * n, 105 + 10 * n)
    found = facts(rows)
    assert found["launch_queue_depth"] == pytest.approx(4.5)
    assert rank_of(rows.trace()).facts["kernels"] == 10


def test_the_first_step_may_be_longer_than_the_rest() -> None:
    rows = Rows()
    at = 0.0
    for n, length in enumerate([300, 100, 100]):
        rows.mark(at, at + length, f"ProfilerStep#{n}")
        rows.launched(at + 1, at + 2, at + 3)
        at += length
    found = facts(rows)
    assert found["first_step_over_rest"] == 3
    assert found["step_variation"] == pytest.approx(0.5657, abs=1e-3)
