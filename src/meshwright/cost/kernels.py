"""Time of one block's kernels, and of embedding and head, per micro-batch on one rank.

Matrix products and fused attention follow the measured curves of `hardware.efficiency`, scaled by
the two fitted shares (hardware in training, software stack); what lies between the products is
bound by memory and counted in bytes. All quantities are columns over the plan's fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.hardware import efficiency
from meshwright.model.architecture import Experts, attention_matmuls, feed_forward_matmuls
from meshwright.plan.plan import PEAK_NAME, ContextParallel, Precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.cost.calibration import HardwareFit, Stack
    from meshwright.hardware.measured import Curves
    from meshwright.model.architecture import Attention, Block, Matmul
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

ACTIVATION_BYTES = 2  # width of activations between the products, but for fp32
FLASH_2_SHARE = 0.6
ASYNC_GENERATIONS = ("hopper", "blackwell", "blackwell-ultra")
FLASH_BACKWARD_PASSES = 4.0  # backward passes over an unfused score matrix per forward pass, halved


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Seconds of kernel time: forward, backward by input gradient, backward by weight gradient."""

    forward_s: Any = 0.0
    backward_s: Any = 0.0
    weight_s: Any = 0.0

    def __add__(self, other: Kernels) -> Kernels:
        return Kernels(
            forward_s=self.forward_s + other.forward_s,
            backward_s=self.backward_s + other.backward_s,
            weight_s=self.weight_s + other.weight_s,
        )

    def times(self, count: int) -> Kernels:
        """`count` of the same."""
        return Kernels(
            forward_s=count * self.forward_s,
            backward_s=count * self.backward_s,
            weight_s=count * self.weight_s,
        )

    @property
    def total_s(self) -> Any:
        """Forward and both backward parts."""
        return self.forward_s + self.backward_s + self.weight_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What a kernel runs on: job, hardware fit and stack, with the tokens a rank sees."""

    job: Job
    hardware: HardwareFit
    stack: Stack

    @property
    def tokens(self) -> Any:
        """Tokens of a micro-batch on one rank, tensor-parallel ranks seeing the same ones."""
        plan = self.job.plan
        return plan.micro_batch_size * self.job.workload.seq_len / plan.cp

    @property
    def sequence_shard(self) -> Any:
        """Ranks that split the tokens outside the tensor-parallel products (sequence parallel)."""
        plan = self.job.plan
        return np.where(plan.sequence_parallel, plan.tp, 1)


def activation_bytes(plan: Plan) -> Any:
    """Width of the activations between the products."""
    return np.where(np.asarray(plan.precision) == Precision.FP32, 4, ACTIVATION_BYTES)


def matmul_s(shop: Shop, m: Any, n: Any, k: Any, *, narrow: bool = True) -> Any:
    """Seconds of one m x k by k x n product; `narrow` products run in the plan's precision."""
    rate = shop.hardware.matmul * shop.stack.matmul
    wide = _wide_precision(shop.job.plan.precision)
    if not narrow:
        return _by_precision(wide, lambda name: _product_s(shop, name, m, n, k)) / rate
    return (
        _by_precision(shop.job.plan.precision, lambda name: _product_s(shop, name, m, n, k)) / rate
    )


def _product_s(shop: Shop, name: str, m: Any, n: Any, k: Any) -> Any:
    """The measured curve, plus casts and scales where the product is 8 bits or narrower."""
    seconds = efficiency.matmul_s(shop.job.cluster.gpu, name, m, n, k)
    if name not in {"fp8", "mxfp8", "nvfp4"}:
        return seconds
    cast_bytes = shop.stack.fp8_overhead * (m * k + n * k) * 3.0
    return seconds / shop.hardware.fp8 + memory_s(shop, cast_bytes) * shop.stack.matmul


def _wide_precision(precision: Any) -> Any:
    """The 16-bit (or wider) type that layers outside the narrow products use."""
    return np.where(np.asarray(precision) >= Precision.FP8, Precision.BF16, precision)


def _by_precision(precision: Any, seconds: Callable[[str], Any]) -> Any:
    """`seconds` by precision name, evaluated once for each precision that occurs."""
    kinds = np.unique(precision) if np.ndim(precision) else [precision]
    result: Any = seconds(PEAK_NAME[Precision(int(kinds[0]))])
    for kind in kinds[1:]:
        result = np.where(precision == kind, seconds(PEAK_NAME[Precision(int(kind))]), result)
    return result


def memory_s(shop: Shop, moved_bytes: Any) -> Any:
    """Seconds of a memory-bound kernel that moves these bytes."""
    return efficiency.memory_bound_s(shop.job.cluster.gpu, moved_bytes) / shop.hardware.memory


def product(shop: Shop, matmul: Matmul) -> Kernels:
    """Forward, input-gradient and weight-gradient products of one weight matrix."""
    plan = shop.job.plan
    if matmul.group == "expert":
        return _expert_product(shop, matmul)
    tp = plan.tp
    n = matmul.out_features / tp if matmul.shard == "column" else matmul.out_features
    k = matmul.in_features / tp if matmul.shard == "row" else matmul.in_features
    m = shop.tokens / shop.sequence_shard if matmul.shard == "none" else shop.tokens
    narrow = matmul.group != "router"
    trained = np.where(plan.lora_rank > 0, 0.0, 1.0)
    return Kernels(
        forward_s=matmul_s(shop, m, n, k, narrow=narrow),
        backward_s=matmul_s(shop, m, k, n, narrow=narrow),
        weight_s=matmul_s(shop, k, n, m, narrow=narrow) * trained,
    )


def _expert_product(shop: Shop, matmul: Matmul) -> Kernels:
    """The grouped products of the experts a rank holds, tokens spread evenly over them."""
    plan = shop.job.plan
    experts = np.maximum(matmul.copies // plan.ep, 1)
    tokens = routed_tokens(shop, matmul.copies) / experts
    n = matmul.out_features / plan.etp if matmul.shard == "column" else matmul.out_features
    k = matmul.in_features / plan.etp if matmul.shard == "row" else matmul.in_features
    gpu = shop.job.cluster.gpu
    rate = shop.hardware.matmul * shop.stack.matmul * shop.stack.moe_grouped
    trained = np.where(plan.lora_rank > 0, 0.0, 1.0)

    def grouped(m: Any, n: Any, k: Any) -> Any:
        return (
            _by_precision(
                plan.precision,
                lambda name: efficiency.grouped_matmul_s(gpu, name, m, n, k, experts),
            )
            / rate
        )

    return Kernels(
        forward_s=grouped(tokens, n, k),
        backward_s=grouped(tokens, k, n),
        weight_s=grouped(tokens, n, k) * trained,
    )


def routed_tokens(shop: Shop, num_experts: int) -> Any:
    """Token copies that one rank's experts process: tokens * top_k, balanced over the ranks."""
    plan = shop.job.plan
    top_k = _top_k(shop.job, num_experts)
    return shop.tokens * top_k * plan.etp / plan.tp


def _top_k(job: Job, num_experts: int) -> int:
    """Experts a token passes in the block with this many experts."""
    for block in job.model.kinds:
        ff = block.feed_forward
        if isinstance(ff, Experts) and ff.num_experts == num_experts:
            return ff.top_k
    return 1


def attention(shop: Shop, layer: Attention) -> Kernels:
    """The attention core (scores, softmax, weighted values), fused or not."""
    plan, seq = shop.job.plan, shop.job.workload.seq_len
    heads = layer.num_attention_heads / plan.tp
    whole_sequence = plan.context_parallel == ContextParallel.ULYSSES
    queries = np.where(whole_sequence, seq, seq / plan.cp)
    heads = np.where(whole_sequence, heads / plan.cp, heads)
    keys = _visible_keys(shop.job, layer)
    shape: dict[str, Any] = {
        "heads": heads,
        "kv_heads": np.maximum(layer.num_key_value_heads / plan.tp, 1),
        "head_dim": (layer.head_dim + layer.v_head_dim) / 2,
        "queries": queries,
        "keys": keys,
        "causal": layer.window is None and shop.job.workload.packed_mean_len is None,
        "batch": plan.micro_batch_size,
        "precision_name": _attention_precision(plan),
    }
    gpu = shop.job.cluster.gpu
    rate: Any = shop.stack.attention * shop.hardware.of_attention * _older_kernels(shop)
    if shop.stack.attention_cp != 1.0:
        rate = rate * np.where(plan.cp > 1, shop.stack.attention_cp, 1.0)
    fused_forward = efficiency.attention_s(gpu, **shape, backward=False) / rate
    fused_backward = efficiency.attention_s(gpu, **shape, backward=True) / rate
    forward, backward = _unfused_attention(shop, layer)
    return Kernels(
        forward_s=np.where(plan.flash_attention, fused_forward, forward),
        backward_s=np.where(plan.flash_attention, fused_backward, backward),
    )


def _attention_precision(plan: Plan) -> str:
    """What fused attention computes in, of a column of plans the most common: 16 bits."""
    exact = np.all(np.asarray(plan.precision) == Precision.FP32)
    return PEAK_NAME[Precision.FP32 if exact else Precision.BF16]


def _older_kernels(shop: Shop) -> float:
    """Speed of a stack's attention kernel against the measured one of the device.

    The curves of Hopper and later were measured with kernels made for them; FlashAttention-2
    reaches 0.5 to 0.67 of those (arXiv 2407.08608, section 4.1: 1.5 to 2.0 times in the forward
    pass, 1.5 to 1.75 in the backward).
    """
    old = shop.stack.attention_generation < 3
    return FLASH_2_SHARE if old and shop.job.cluster.gpu.generation in ASYNC_GENERATIONS else 1.0


def _visible_keys(job: Job, layer: Attention) -> float:
    """Keys a query may see: the window, the mean packed document, or the whole sequence.

    A full causal layer returns the sequence length and is halved by the kernel; bounded layers
    return the mean number of visible keys.
    """
    seq = float(job.workload.seq_len)
    if job.workload.packed_mean_len is not None:
        return min(job.workload.packed_mean_len, seq) / 2
    if layer.window is None:
        return seq
    window = min(float(layer.window), seq)
    if layer.chunked:
        return window / 2
    return window * (1 - window / (2 * seq))


def _unfused_attention(shop: Shop, layer: Attention) -> tuple[Any, Any]:
    """Forward and backward seconds of attention that writes its score matrix to memory."""
    plan, seq = shop.job.plan, shop.job.workload.seq_len
    heads = layer.num_attention_heads / plan.tp
    scores = plan.micro_batch_size * heads * (seq / plan.cp) * seq
    passes = memory_s(shop, scores * activation_bytes(plan)) * shop.stack.unfused_passes
    batched = plan.micro_batch_size * heads
    width = (layer.head_dim + layer.v_head_dim) / 2
    products = 2.0 * matmul_s(shop, batched * seq / plan.cp, seq, width, narrow=False)
    return products + passes, 2.0 * products + passes * FLASH_BACKWARD_PASSES / 2.0


def elementwise(shop: Shop, block: Block) -> Kernels:
    """Norms, residuals, rotary embedding, activation: bytes moved, times the stack's factor.

    On a device with measured pieces, these. Otherwise per token, forward: each norm reads and
    writes the hidden state, each residual reads two and writes one (split over tp under sequence
    parallelism); rotary reads and writes Q and K; the activation reads its inputs and writes its
    output (split over tp). Backward moves twice that.
    """
    plan, model = shop.job.plan, shop.job.model
    curves = pieces_of(shop.job)
    if curves is not None:
        return _measured_between(shop, block, curves)
    a, h = block.attention, model.hidden_size
    hidden = (2 * block.norms + 6) * h / shop.sequence_shard
    rotary = 2 * (a.num_attention_heads + a.num_key_value_heads) * a.head_dim / plan.tp
    inner = activation_width(shop, block)
    moved = shop.tokens * (hidden + rotary + inner) * activation_bytes(plan)
    moved = moved * shop.stack.elementwise
    forward = memory_s(shop, moved)
    return Kernels(forward_s=forward, backward_s=2.0 * forward)


def pieces_of(job: Job) -> Curves | None:
    """The device's own curves, where they hold the pieces between the products."""
    curves = job.cluster.gpu.curves
    return curves if curves is not None and curves.pieces else None


def _measured_between(shop: Shop, block: Block, curves: Curves) -> Kernels:
    """The same from measured pieces: each runs on a tensor of its own."""
    plan, a = shop.job.plan, block.attention
    hidden = shop.tokens * shop.job.model.hidden_size / shop.sequence_shard
    rotary = shop.tokens * (a.num_attention_heads + a.num_key_value_heads) * a.head_dim / plan.tp
    inner = shop.tokens * activation_width(shop, block) / (3 if block.feed_forward.gated else 2)
    pieces = (
        ("norm", block.norms, hidden),
        ("residual", 1 if block.parallel else 2, hidden),
        ("rotary", 1, rotary),
        ("gate", 1, inner),
    )
    total = Kernels()
    for name, count, elements in pieces:
        total += _piece(shop, curves, name, elements).times(count)
    return total


def _piece(shop: Shop, curves: Curves, name: str, elements: Any) -> Kernels:
    """Both passes of one measured piece."""
    width = activation_bytes(shop.job.plan)

    def seconds(*, backward: bool) -> Any:
        whole = curves.piece_s(name, elements, width_bytes=width, backward=backward)
        return whole / shop.hardware.memory

    return Kernels(forward_s=seconds(backward=False), backward_s=seconds(backward=True))


def activation_width(shop: Shop, block: Block) -> Any:
    """Elements per token read and written by the activation, with the routing's copies."""
    plan, ff = shop.job.plan, block.feed_forward
    inputs = 3 if ff.gated else 2
    if not isinstance(ff, Experts):
        return inputs * ff.intermediate_size / plan.tp
    routed = ff.top_k * inputs * ff.intermediate_size / plan.tp
    copies = 4 * ff.top_k * shop.job.model.hidden_size / plan.tp
    shared = inputs * ff.shared_intermediate_size / plan.tp
    router = 4 * ff.num_experts / shop.sequence_shard
    return (routed + copies + router) * shop.stack.moe_elementwise + shared


def block_products(shop: Shop, block: Block) -> tuple[Kernels, Kernels]:
    """Products of the attention layer and of the feed-forward layer."""
    h = shop.job.model.hidden_size
    first, second = Kernels(), Kernels()
    for matmul in attention_matmuls(block.attention, h):
        first += product(shop, matmul)
    for matmul in feed_forward_matmuls(block.feed_forward, h):
        second += product(shop, matmul)
    return first, second


def head(shop: Shop) -> Kernels:
    """Vocabulary projection and cross-entropy of one micro-batch."""
    plan, model = shop.job.plan, shop.job.model
    vocab = model.vocab_size / np.where(plan.vocab_parallel, plan.tp, 1)
    t, h = shop.tokens, model.embedding_size or model.hidden_size
    loss = _loss(shop, t * vocab)
    trained = np.where(plan.lora_rank > 0, 0.0, 1.0)
    return Kernels(
        forward_s=matmul_s(shop, t, vocab, h, narrow=False) + loss.forward_s,
        backward_s=matmul_s(shop, t, h, vocab, narrow=False) + loss.backward_s,
        weight_s=matmul_s(shop, h, vocab, t, narrow=False) * trained,
    )


def _loss(shop: Shop, logits: Any) -> Kernels:
    """Cross-entropy over so many logits, in fp32."""
    curves = pieces_of(shop.job)
    if curves is not None:
        fresh = _piece(shop, curves, "fresh", logits)  # the product's: none of ours is as large
        return _piece(shop, curves, "loss", logits) + replace(fresh, backward_s=0.0)
    moved_s = memory_s(shop, logits * np.where(shop.job.plan.fused_loss, 6.0, 16.0))
    return Kernels(forward_s=moved_s, backward_s=moved_s)


def embedding(shop: Shop) -> Kernels:
    """Embedding look-up and the scatter of its gradient."""
    plan, h = shop.job.plan, shop.job.model.hidden_size
    trained = np.where(plan.lora_rank > 0, 0.0, 1.0)
    curves = pieces_of(shop.job)
    if curves is not None:
        looked_up = _piece(shop, curves, "embedding", shop.tokens * h)
        rows = shop.job.model.vocab_size / np.where(plan.vocab_parallel, plan.tp, 1)
        cleared_s = memory_s(shop, rows * h * activation_bytes(plan))
        return Kernels(
            forward_s=looked_up.forward_s, weight_s=(looked_up.backward_s + cleared_s) * trained
        )
    moved = memory_s(shop, shop.tokens * h * activation_bytes(plan) * 3.0)
    return Kernels(forward_s=moved, weight_s=2.0 * moved * trained)
