"""Bytes that one block keeps between its forward and backward pass, operator by operator.

Follows Korthikanti et al., arXiv 2205.05198, section 4 (34 s b h + 5 a s^2 b for a GPT layer in
16 bits), extended to grouped and latent attention, gated and routed networks, and to what a
software stack really keeps (`MemoryStack`). Bytes per layer and micro-batch; scalars or columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.model.architecture import Experts, Mlp
from meshwright.plan.plan import RecomputeModule

if TYPE_CHECKING:
    from meshwright.cost.memory.shape import Shape
    from meshwright.cost.memory.stack import MemoryStack
    from meshwright.model.architecture import Attention, Block

Operators = dict[str, Any]


def saved_operators(
    block: Block, hidden_size: int, *, shape: Shape, stack: MemoryStack
) -> Operators:
    """Bytes kept by each operator of a block without recompute, by name."""
    saved = _norms(block, hidden_size, shape, stack)
    saved |= _attention(block.attention, hidden_size, shape, stack)
    ff = block.feed_forward
    if isinstance(ff, Mlp):
        saved |= _mlp(ff, hidden_size, shape, stack)
    else:
        saved |= _experts(ff, hidden_size, shape, stack)
    if block.parallel and block.norms < 2:
        saved["mlp.input"] = 0.0 * shape.tokens  # the attention's input is read twice
    return saved


def checkpoint_bytes(hidden_size: int, shape: Shape) -> Any:
    """Bytes of a block's input, all that full recompute keeps of it."""
    cut = np.where(shape.distribute_saved, shape.tp, shape.sequence_cut)
    return shape.element * shape.tokens * hidden_size / cut


def recomputed_operators(saved: Operators, shape: Shape) -> Operators:
    """The part of each operator that selective recompute drops and makes again."""
    covers, module = shape.covers, RecomputeModule
    rules = {
        "attention.scores": covers(module.CORE_ATTENTION),
        "attention.statistics": covers(module.CORE_ATTENTION),
        "attention.qkv": covers(module.MLA_UP_PROJECTION) & ("attention.latents" in saved),
        "attention.input": covers(module.NORM),
        "mlp.input": covers(module.NORM),
        "mlp.inner": covers(module.MLP),
        "mlp.product": covers(module.MLP),
        "moe.product": covers(module.MOE_ACTIVATION) | covers(module.MOE),
        "moe.inner": covers(module.MOE),
        "moe.tokens": covers(module.MOE),
        "moe.output": covers(module.MOE),
        "moe.router": covers(module.MOE),
        "moe.shared": covers(module.SHARED_EXPERTS) | covers(module.MOE),
    }
    return {name: np.where(rules[name], saved[name], 0.0) for name in saved if name in rules}


def alternate_matmuls_bytes(block: Block, hidden_size: int, shape: Shape) -> Any:
    """Bytes kept by torchtitan's operator-level policy.

    The block's input, the fused attention's output and every second matrix product in the order
    q, k, v, o, gate, up, down (or fc1, fc2), counted from the first; reduce-scattered outputs too.
    Source: torchtitan, activation checkpointing, per-op selective mode.
    """
    widths = _matmul_widths(block, hidden_size, shape)
    kept = sum(widths[::2], start=0.0 * shape.tokens)
    a = block.attention
    core = a.num_attention_heads * a.v_head_dim / shape.tp
    lse = 4.0 * shape.tokens * a.num_attention_heads / shape.tp
    scattered = np.where((shape.sequence_cut > 1), 2 * hidden_size / shape.sequence_cut, 0.0)
    elements = kept + core + scattered
    return checkpoint_bytes(hidden_size, shape) + shape.element * shape.tokens * elements + lse


def output_bytes(block: Block, hidden_size: int, shape: Shape) -> Any:
    """Bytes of the outputs of a block's matrix products and norms, experts' included."""
    a, ff = block.attention, block.feed_forward
    own = shape.tokens / shape.sequence_cut
    elements = shape.tokens * sum(_matmul_widths(block, hidden_size, shape))
    elements = elements + own * block.norms * hidden_size
    if a.qk_norm:
        heads = a.num_attention_heads / shape.tp + kv_heads(a, shape.tp)
        elements = elements + shape.tokens * heads * a.head_dim
    if isinstance(ff, Experts):
        inner = ff.intermediate_size / shape.etp * (2 if ff.gated else 1)
        elements = elements + own * ff.top_k * shape.etp * (inner + hidden_size)
    return shape.element * elements


def _matmul_widths(block: Block, hidden_size: int, shape: Shape) -> list[Any]:
    """Output width on this rank of each matrix product outside the experts, in order."""
    a, tp = block.attention, shape.tp
    kv = kv_heads(a, tp)
    if a.is_latent:
        nope = a.head_dim - a.qk_rope_head_dim
        heads = a.num_attention_heads
        first = [(a.q_lora_rank or 0) + 0 * tp] if a.q_lora_rank else []
        widths = [
            *first,
            heads * a.head_dim / tp,
            (a.kv_lora_rank or 0) + a.qk_rope_head_dim + 0 * tp,
            heads * (nope + a.v_head_dim) / tp,
        ]
    else:
        widths = [a.num_attention_heads * a.head_dim / tp, kv * a.head_dim, kv * a.v_head_dim]
    widths.append(hidden_size + 0 * tp)
    ff = block.feed_forward
    if isinstance(ff, Mlp):
        widths += [ff.intermediate_size / tp] * (2 if ff.gated else 1) + [hidden_size + 0 * tp]
    else:
        widths.append(ff.num_experts + 0 * tp)
    return widths


def kv_heads(attention: Attention, tp: Any) -> Any:
    """Key/value heads on a rank; at least one, held twice over where tp exceeds them."""
    return np.maximum(attention.num_key_value_heads / tp, 1.0)


def _norms(block: Block, hidden_size: int, shape: Shape, stack: MemoryStack) -> Operators:
    """Inputs (and inner values) of the full-width norms, masks of residual dropout."""
    per_norm = shape.norm * shape.tokens * hidden_size / shape.sequence_cut
    saved: Operators = {"norm": block.norms * per_norm}
    if stack.dropout:
        saved["dropout"] = 2.0 * shape.tokens * hidden_size / shape.sequence_cut
    return saved


def _attention(a: Attention, hidden_size: int, shape: Shape, stack: MemoryStack) -> Operators:
    """Input, queries, keys and values, scores or their statistics, output."""
    element, tokens, heads = shape.element, shape.tokens, a.num_attention_heads / shape.tp
    saved: Operators = {
        "attention.input": shape.linear_input * tokens * hidden_size / shape.gathered_cut
    }
    if a.is_latent:
        saved |= _latent(a, shape)
    else:
        kv = kv_heads(a, shape.tp)
        rotated = (heads + kv) * a.head_dim
        width = rotated * (1 + stack.rope_copies) + kv * a.v_head_dim
        saved["attention.qkv"] = element * tokens * width
    if a.qk_norm:
        width = (heads + kv_heads(a, shape.tp)) * a.head_dim
        saved["attention.qk_norm"] = shape.norm * tokens * width
    fp8_copy = np.where(shape.linear_input < 2, shape.linear_input, 0.0)
    output = (element + fp8_copy) * tokens * heads * a.v_head_dim
    saved["attention.output"] = output
    if stack.context_copies:
        foreign = shape.kept_foreign_tokens * kv_heads(a, shape.tp) * (a.head_dim + a.v_head_dim)
        saved["attention.context"] = element * foreign + np.where(shape.exchanged, output, 0.0)
    score = stack.score_bytes if a.softmax_dropout or stack.dropout else min(stack.score_bytes, 4)
    saved["attention.scores"] = np.where(shape.flash, 0.0, score * tokens * heads * shape.seq_len)
    saved["attention.statistics"] = np.where(shape.flash, 4.0 * tokens * heads, 0.0)
    return saved


def _latent(a: Attention, shape: Shape) -> Operators:
    """Latents and their norms, and the queries, keys and values projected up from them.

    Keys are concatenated from their two parts, so the up-projection stays alive through the values.
    DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """
    heads = a.num_attention_heads / shape.tp
    nope = a.head_dim - a.qk_rope_head_dim
    ranks = 2 * (a.q_lora_rank or 0) + 2 * (a.kv_lora_rank or 0) + a.qk_rope_head_dim
    up = heads * (2 * a.head_dim + nope + a.v_head_dim)
    return {
        "attention.latents": shape.element * shape.tokens * ranks / shape.sequence_cut,
        "attention.qkv": shape.element * shape.tokens * up,
    }


def _mlp(ff: Mlp, hidden_size: int, shape: Shape, stack: MemoryStack) -> Operators:
    """Input, inner tensors and the product that the down projection reads."""
    inner, product = _inner(ff, shape.tokens * ff.intermediate_size / shape.tp, shape, stack)
    entry = shape.linear_input * shape.tokens * hidden_size / shape.gathered_cut
    return {"mlp.input": entry, "mlp.inner": inner, "mlp.product": product}


def _inner(ff: Mlp | Experts, elements: Any, shape: Shape, stack: MemoryStack) -> tuple[Any, Any]:
    """Bytes of the tensors before the down projection, and of its input."""
    copies = (shape.copies if ff.gated else stack.plain_copies) - 1
    return copies * shape.element * elements, shape.linear_input * elements


def _experts(ff: Experts, hidden_size: int, shape: Shape, stack: MemoryStack) -> Operators:
    """Router, dispatched tokens, expert inner tensors, outputs to be weighted, shared experts.

    Tokens are taken as balanced over the experts: each rank works on its share times top_k,
    gathered over etp.
    """
    own = shape.tokens / shape.sequence_cut
    routed = own * ff.top_k * shape.etp
    inner, product = _inner(ff, routed * ff.intermediate_size / shape.etp, shape, stack)
    saved: Operators = {
        "mlp.input": shape.linear_input * own * hidden_size,
        "moe.router": own * (stack.router_bytes * ff.num_experts + stack.route_bytes * ff.top_k),
        "moe.tokens": shape.linear_input * routed * hidden_size,
        "moe.inner": inner,
        "moe.product": product,
    }
    if stack.moe_output_saved:
        saved["moe.output"] = shape.element * own * ff.top_k * hidden_size
    if ff.shared_intermediate_size:
        width = ff.shared_intermediate_size / shape.tp
        shared, down = _inner(ff, shape.tokens * width, shape, stack)
        saved["moe.shared"] = shared + down
    return saved
