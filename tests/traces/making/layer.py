"""A transformer layer, forward and backward, as operators and kernels of one rank."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from making import kernels
from making.collectives import collective
from making.machine import Machine

if TYPE_CHECKING:
    from making.machine import Running
    from making.spec import Spec

LEAST_US = 2.0  # no kernel is shorter


def sizes(spec: Spec) -> tuple[int, int, int, int]:
    """Tokens of a micro-batch on a rank, sequence, hidden and feed-forward size."""
    small = spec.small_kernels
    sequence = 128 if small else spec.sequence
    hidden, ffn = (1024, 2816) if small else (spec.hidden, spec.ffn)
    return spec.micro_batch_size * sequence // spec.cp, sequence, hidden, ffn


def layer_elements(spec: Spec) -> int:
    """Parameters of a layer on a rank."""
    _, _, hidden, ffn = sizes(spec)
    return (4 * hidden * hidden + 3 * hidden * ffn) // spec.tp


def product(
    m: Machine, rows: int, inner: int, cols: int, *, layout: str = "tn", rate: float = 0.0
) -> None:
    """aten::mm of (rows, inner) and (inner, cols), at `rate` TFLOP/s if that is said."""
    rate = rate or (45.0 if m.spec.fp32_matmuls else m.spec.matmul_tflops)
    dims = [[rows, inner], [inner, cols]]
    with m.op("aten::mm", dims=dims, types=[_dtype(m.spec)] * 2):
        us = 2.0 * rows * inner * cols / (rate * 1e6)
        m.kernel(kernels.matmul(m.spec, layout=layout), max(LEAST_US, us))


def batched(m: Machine, batch: int, rows: int, inner: int, cols: int) -> None:
    """aten::bmm, far from its peak as attention without fusion is."""
    dims = [[batch, rows, inner], [batch, inner, cols]]
    with m.op("aten::bmm", dims=dims, types=[_dtype(m.spec)] * 2):
        us = 2.0 * batch * rows * inner * cols / (m.spec.matmul_tflops * 0.12 * 1e6)
        m.kernel(kernels.matmul(m.spec), max(LEAST_US, us))


def each(m: Machine, op: str, kernel: str, elements: float, *, passes: float = 3.0) -> None:
    """A kernel bound by memory: it moves its elements `passes` times."""
    with m.op(op, dims=[[int(elements)]], types=[_dtype(m.spec)]):
        us = elements * 2 * passes / (m.spec.memory_gbps * 1e3)
        m.kernel(kernel, max(LEAST_US, us))


def forward(m: Machine, micro_batch: int) -> Running:
    """One layer."""
    tokens, _, hidden, _ = sizes(m.spec)
    _norm(m)
    yield from _gather(m)
    with m.op("aten::linear"):
        product(m, tokens, hidden, 3 * hidden // m.spec.tp)
    _rope(m)
    yield from collective(
        m,
        "cp",
        "_allgather_base",
        elements=2 * tokens * m.spec.cp * hidden // m.spec.tp,
        blocks=True,
    )
    _attention(m, micro_batch, backward=False)
    with m.op("aten::linear"):
        product(m, tokens, hidden // m.spec.tp, hidden)
    yield from _scatter(m)
    each(m, "aten::add", kernels.ADD, tokens * hidden / m.spec.tp)
    _norm(m)
    yield from _gather(m)
    yield from _mixture(m, backward=False) if m.spec.experts else _mlp(m)
    yield from _scatter(m)
    each(m, "aten::add", kernels.ADD, tokens * hidden / m.spec.tp)
    for _ in range(m.spec.items_per_layer):
        yield from item(m)


def backward(m: Machine, micro_batch: int) -> Running:
    """The same layer in reverse: two products for each."""
    tokens, _, hidden, _ = sizes(m.spec)
    if m.spec.recompute:
        node = {"Fwd thread id": 1, "Sequence number": 77}
        with (
            m.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", **node),
            m.op("CheckpointFunctionBackward", **node),
        ):
            yield from forward(m, micro_batch)
    yield from _gather(m)
    yield from _mixture(m, backward=True) if m.spec.experts else _mlp_back(m)
    yield from _scatter(m)
    _norm_back(m)
    each(m, "aten::add", kernels.ADD, tokens * hidden / m.spec.tp)
    yield from _gather(m)
    _twice(m, tokens, hidden // m.spec.tp, hidden)
    _attention(m, micro_batch, backward=True)
    yield from collective(
        m,
        "cp",
        "_reduce_scatter_base",
        elements=2 * tokens * m.spec.cp * hidden // m.spec.tp,
        blocks=True,
    )
    _rope(m)
    _twice(m, tokens, hidden, 3 * hidden // m.spec.tp)
    yield from _scatter(m)
    _norm_back(m)
    each(m, "aten::add", kernels.ADD, tokens * hidden / m.spec.tp)


def item(m: Machine) -> Running:
    """loss.item(): the host waits for the device."""
    m.graph = min(m.graph, 0)
    with m.op("aten::item"), m.op("aten::_local_scalar_dense"):
        m.copy("Memcpy DtoH (Device -> Pinned)", 1.5, 4, blocks=False)
        yield from m.synchronize("cudaStreamSynchronize")


def _twice(m: Machine, rows: int, inner: int, cols: int) -> None:
    number = len(m.ops)
    back = {"Sequence number": number, "Fwd thread id": 1}
    with (
        m.op("autograd::engine::evaluate_function: MmBackward0", **back),
        m.op("MmBackward0", **back),
    ):
        product(m, rows, cols, inner, layout="nn")
        product(m, inner, rows, cols, layout="nt")


def _norm(m: Machine) -> None:
    tokens, _, hidden, _ = sizes(m.spec)
    size = tokens * hidden / m.spec.tp
    if not (m.spec.unfused_elementwise or m.spec.small_kernels):
        each(m, "transformer_engine::rmsnorm_fwd", kernels.NORM, size, passes=2)
        return
    each(m, "aten::to", kernels.COPY, size, passes=3)
    each(m, "aten::pow", kernels.POW, size, passes=4)
    each(m, "aten::mean", kernels.MEAN, size, passes=2)
    each(m, "aten::rsqrt", kernels.RSQRT, tokens)
    each(m, "aten::mul", kernels.MUL, size, passes=4)
    each(m, "aten::mul", kernels.MUL, size, passes=3)


def _norm_back(m: Machine) -> None:
    tokens, _, hidden, _ = sizes(m.spec)
    size = tokens * hidden / m.spec.tp
    if m.spec.unfused_elementwise or m.spec.small_kernels:
        for _ in range(6):
            each(m, "aten::mul", kernels.MUL, size)
    else:
        each(m, "transformer_engine::rmsnorm_bwd", kernels.NORM_BACK, size, passes=4)


def _rope(m: Machine) -> None:
    tokens, _, hidden, _ = sizes(m.spec)
    size = 2 * tokens * hidden / m.spec.tp
    if not (m.spec.unfused_elementwise or m.spec.small_kernels):
        each(m, kernels.ROPE, kernels.ROPE, size, passes=2)
        return
    for _ in range(2):
        each(m, "aten::neg", kernels.NEG, size / 4)
        each(m, "aten::cat", kernels.CAT, size / 2)
        each(m, "aten::mul", kernels.MUL, size / 2)
        each(m, "aten::mul", kernels.MUL, size / 2)
        each(m, "aten::add", kernels.ADD, size / 2)


def _attention(m: Machine, micro_batch: int, *, backward: bool) -> None:
    spec = m.spec
    tokens, sequence, hidden, _ = sizes(spec)
    heads = spec.heads // spec.tp
    per_head = hidden // spec.heads
    work = (2.5 if backward else 1.0) * imbalance(m, micro_batch)
    if not spec.unfused_attention:
        flops = 4.0 * tokens * sequence * (hidden // spec.tp) / 2 * work
        us = max(LEAST_US, flops / (spec.attention_tflops * 1e6))
        dims = [[spec.micro_batch_size, heads, sequence // spec.cp, per_head]] * 3
        op = "aten::_flash_attention_backward" if backward else "aten::_flash_attention_forward"
        with m.op(op, dims=dims, types=[_dtype(spec)] * 3):
            m.kernel(kernels.flash(spec, backward=backward), us)
        return
    batch = spec.micro_batch_size * heads
    scores = batch * (sequence // spec.cp) * sequence
    for _ in range(2 if backward else 1):
        batched(m, batch, sequence // spec.cp, per_head, sequence)
        each(m, "aten::masked_fill", kernels.MASK, scores * work / (2.5 if backward else 1))
        softmax = kernels.SOFTMAX_BACK if backward else kernels.SOFTMAX
        each(m, "aten::_softmax", softmax, scores)
        batched(m, batch, sequence // spec.cp, sequence, per_head)


def imbalance(m: Machine, micro_batch: int) -> float:
    """How much longer attention takes with this rank's sequences, the same on tp, cp and pp."""
    if m.spec.sequence_imbalance == 0.0:
        return 1.0
    data = (m.rank // (m.spec.tp * m.spec.cp)) % m.spec.dp
    drawn = random.Random(f"{m.spec.seed}.{data}.{m.step}.{micro_batch}")
    return math.exp(drawn.gauss(0.0, m.spec.sequence_imbalance))


def _mlp(m: Machine) -> Running:
    tokens, _, hidden, ffn = sizes(m.spec)
    inner = ffn // m.spec.tp
    with m.op("aten::linear"):
        product(m, tokens, hidden, 2 * inner)
    _activation(m, tokens * inner)
    with m.op("aten::linear"):
        product(m, tokens, inner, hidden)
    yield from ()


def _activation(m: Machine, size: float) -> None:
    if m.spec.unfused_elementwise or m.spec.small_kernels:
        each(m, "aten::silu", kernels.SILU, size, passes=2)
        each(m, "aten::mul", kernels.MUL, size, passes=3)
    else:
        each(m, kernels.SWIGLU, kernels.SWIGLU, size, passes=3)


def _mlp_back(m: Machine) -> Running:
    tokens, _, hidden, ffn = sizes(m.spec)
    inner = ffn // m.spec.tp
    _twice(m, tokens, inner, hidden)
    each(m, kernels.SWIGLU_BACK, kernels.SWIGLU_BACK, tokens * inner, passes=5)
    _twice(m, tokens, hidden, 2 * inner)
    yield from ()


def _mixture(m: Machine, *, backward: bool) -> Running:
    """Experts: route, exchange, grouped products, exchange back."""
    spec = m.spec
    tokens, _, hidden, ffn = sizes(spec)
    routed = tokens * spec.top_k
    if not backward:
        product(m, tokens, hidden, spec.experts)
        each(m, "aten::topk", kernels.TOPK, tokens * spec.experts)
        each(m, "moe_permute", kernels.PERMUTE, routed * hidden, passes=2)
    yield from collective(m, "ep", "all_to_allv", elements=routed * hidden, blocks=True)
    group = m.groups.get("ep")
    hot = group is not None and m.rank == group.ranks[0]
    factor = (2.0 if backward else 1.0) * (spec.expert_imbalance if hot else 1.0)
    for inner, outer in ((hidden, 2 * ffn // spec.tp), (ffn // spec.tp, hidden)):
        with m.op("GroupedLinearBackward" if backward else "_GroupedLinear"):
            us = 2.0 * routed * inner * outer / (spec.matmul_tflops * 1e6) * factor
            m.kernel(kernels.GROUPED, max(LEAST_US, us))
        if outer != hidden:
            _activation(m, routed * outer / 2)
    yield from collective(m, "ep", "all_to_allv", elements=routed * hidden, blocks=True)


def _gather(m: Machine) -> Running:
    tokens, _, hidden, _ = sizes(m.spec)
    if not m.spec.symmetric_memory:
        yield from collective(m, "tp", "_allgather_base", elements=tokens * hidden, blocks=True)


def _scatter(m: Machine) -> Running:
    tokens, _, hidden, _ = sizes(m.spec)
    word = "allreduce" if m.spec.symmetric_memory else "_reduce_scatter_base"
    yield from collective(m, "tp", word, elements=tokens * hidden, blocks=True)


def _dtype(spec: Spec) -> str:
    return "float" if spec.fp32_matmuls else "c10::BFloat16"
