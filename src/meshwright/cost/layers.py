"""Time of one block per micro-batch on one rank: kernels, host, and the collectives inside it.

It depends on tp, cp, ep, etp, micro-batch, recompute, precision and the overlap flags only, so a
search evaluates it for the few hundred combinations that occur and combines them afterwards.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost import collectives, kernels
from meshwright.cost.calibration import fits_of
from meshwright.cost.kernels import Kernels, Shop
from meshwright.model.architecture import Experts
from meshwright.plan.plan import ContextParallel, Precision, Recompute, RecomputeModule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.cost.calibration import Calibration
    from meshwright.model.architecture import Block
    from meshwright.plan.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime:
    """Seconds of one block (or of embedding or head) per micro-batch.

    `forward_s`, `backward_s` (input gradients) and `weight_s` (weight gradients) are busy times
    with exposed communication and host waits; `recompute_s` is what recompute adds to the backward
    pass where it applies. The other fields split forward plus backward by cause.
    """

    forward_s: Any
    backward_s: Any
    weight_s: Any
    recompute_s: Any
    matmul_s: Any = 0.0
    attention_s: Any = 0.0
    elementwise_s: Any = 0.0
    host_s: Any = 0.0
    tp_s: Any = 0.0
    cp_s: Any = 0.0
    ep_s: Any = 0.0

    def take(self, index: NDArray[np.int64]) -> BlockTime:
        """The rows at `index`; scalars stay scalar."""
        return BlockTime(**{f.name: _take(getattr(self, f.name), index) for f in fields(self)})


def _take(value: Any, index: NDArray[np.int64]) -> Any:
    """Rows of a column, or the scalar."""
    return value[index] if np.ndim(value) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Times of every kind of block (in the order of `Model.kinds`), of embedding and of head."""

    kinds: tuple[BlockTime, ...]
    embedding: BlockTime
    head: BlockTime

    def take(self, index: NDArray[np.int64]) -> LayerTimes:
        """The rows at `index`."""
        return LayerTimes(
            kinds=tuple(kind.take(index) for kind in self.kinds),
            embedding=self.embedding.take(index),
            head=self.head.take(index),
        )


def layer_times(job: Job, calibration: Calibration) -> LayerTimes:
    """Times of the model's blocks, embedding and head under the job's plan (columns allowed)."""
    hardware, stack = fits_of(job, calibration)
    shop = Shop(job=job, hardware=hardware, stack=stack)
    return LayerTimes(
        kinds=tuple(block_time(shop, block) for block in job.model.kinds),
        embedding=_end_time(shop, kernels.embedding(shop)),
        head=_end_time(shop, kernels.head(shop)),
    )


def _end_time(shop: Shop, work: Kernels) -> BlockTime:
    """Embedding or head: kernels and the tensor-parallel reduction of the hidden state."""
    tp_s = _tp_transfer_s(shop) / 2.0
    return BlockTime(
        forward_s=work.forward_s + tp_s,
        backward_s=work.backward_s + tp_s,
        weight_s=work.weight_s,
        recompute_s=0.0,
        matmul_s=work.total_s,
        tp_s=2.0 * tp_s,
    )


def block_time(shop: Shop, block: Block) -> BlockTime:
    """Kernels, then exposed communication, then what the host adds when it launches too slowly."""
    attention_products, feed_forward = kernels.block_products(shop, block)
    core = kernels.attention(shop, block.attention)
    between = kernels.elementwise(shop, block)
    work = attention_products + feed_forward + core + between
    tp_forward, tp_backward = _tp_exposed_s(shop, block)
    cp_forward, cp_backward = _cp_exposed_s(shop, block, core)
    ep_s = _ep_exposed_s(shop, block, feed_forward)
    forward = work.forward_s + tp_forward + cp_forward + ep_s
    backward = work.backward_s + tp_backward + cp_backward + ep_s
    host_forward = _host_s(shop, block)
    host_backward = host_forward * shop.stack.host_backward
    wait_forward = _host_wait_s(shop, host_forward, forward)
    wait_backward = _host_wait_s(shop, host_backward, backward, work.weight_s)
    again = _recompute_s(shop, block, (attention_products, feed_forward, core, between))
    again = again + np.where(_is_full(shop.job), tp_forward + cp_forward + ep_s + wait_forward, 0.0)
    return BlockTime(
        forward_s=forward + wait_forward,
        backward_s=backward + wait_backward,
        weight_s=work.weight_s,
        recompute_s=again,
        matmul_s=attention_products.total_s + feed_forward.total_s,
        attention_s=core.total_s,
        elementwise_s=between.total_s,
        host_s=wait_forward + wait_backward,
        tp_s=tp_forward + tp_backward,
        cp_s=cp_forward + cp_backward,
        ep_s=2.0 * ep_s,
    )


def _host_wait_s(shop: Shop, host_s: Any, *device_s: Any) -> Any:
    """What the host adds: all its time where it computes itself, else what outlasts the device."""
    if shop.stack.host_serial:
        return host_s
    for seconds in device_s:
        host_s = host_s - seconds
    return np.maximum(host_s, 0.0)


def _is_full(job: Job) -> Any:
    """True where whole layers are recomputed."""
    return np.asarray(job.plan.recompute) == Recompute.FULL


def _host_s(shop: Shop, block: Block) -> Any:
    """Host time to launch a block's forward: more for routing and collectives, less in a graph."""
    stack, plan = shop.stack, shop.job.plan
    routed = stack.moe_host if block.is_moe else 1.0
    launches = stack.host_layer_s * routed + np.where(plan.tp > 1, stack.host_tp_s, 0.0)
    if stack.host_cp_s:
        launches = launches + np.where(plan.cp > 1, stack.host_cp_s, 0.0)
    return np.where(plan.cuda_graph, 0.15, 1.0) * launches


def _tp_group(shop: Shop) -> collectives.Group:
    """The tensor-parallel group: neighbours in rank order."""
    return collectives.place(
        shop.job.cluster,
        shop.job.plan.tp,
        1,
        scale_up=shop.hardware.scale_up * shop.stack.tp_rate,
        scale_out=shop.hardware.scale_out * shop.stack.tp_rate,
        latency=shop.stack.network_latency,
    )


def _tp_transfer_s(shop: Shop) -> Any:
    """One all-reduce of a micro-batch's hidden state over tp, or a gather and a scatter."""
    plan, group = shop.job.plan, _tp_group(shop)
    hidden_bytes = shop.tokens * shop.job.model.hidden_size * kernels.activation_bytes(plan)
    reduce_s = collectives.all_reduce_s(group, hidden_bytes)
    split_s = 2.0 * collectives.all_gather_s(group, hidden_bytes)
    seconds = np.where(plan.sequence_parallel, split_s, reduce_s)
    return np.where(plan.tp > 1, seconds, 0.0)


def _tp_exposed_s(shop: Shop, block: Block) -> tuple[Any, Any]:
    """Exposed tensor-parallel communication, forward and backward.

    Forward has one all-reduce (or reduce-scatter plus all-gather) for attention and one for a dense
    MLP; routed layers keep tokens split, so only attention and shared experts communicate. With
    sequence parallelism the backward pass gathers the inputs once more for the weight gradients
    (arXiv 2205.05198, section 4.2.2).
    """
    plan, stack = shop.job.plan, shop.stack
    ff = block.feed_forward
    pairs = 2.0 if not isinstance(ff, Experts) else 1.0 + (ff.shared_intermediate_size > 0)
    if block.parallel:
        pairs = 1.0
    hidden = 1.0 - np.where(plan.overlap_tp, stack.overlap_tp, 0.0)
    forward = pairs * _tp_transfer_s(shop) * hidden
    return forward, forward * np.where(plan.sequence_parallel, 1.5, 1.0)


def _cp_exposed_s(shop: Shop, block: Block, core: Kernels) -> tuple[Any, Any]:
    """Exposed context-parallel communication, forward and backward.

    A ring hides behind the attention of the previous chunk; gathering keys and values, or the
    all-to-alls of Ulysses, do not.
    """
    plan, a = shop.job.plan, block.attention
    group = collectives.place(
        shop.job.cluster,
        plan.cp,
        plan.tp,
        scale_up=shop.hardware.scale_up,
        scale_out=shop.hardware.scale_out,
    )
    width = a.num_key_value_heads * (a.head_dim + a.v_head_dim) / plan.tp
    if a.is_latent:
        width = a.num_attention_heads * (a.head_dim + a.v_head_dim) / plan.tp
    kv_bytes = shop.tokens * width * kernels.activation_bytes(plan)
    steps = plan.cp - 1
    ring = collectives.point_to_point_s(group, kv_bytes) * steps
    gather = collectives.all_gather_s(group, kv_bytes * plan.cp)
    q_bytes = (
        shop.tokens * a.num_attention_heads * a.head_dim / plan.tp * kernels.activation_bytes(plan)
    )
    exchange = 2.0 * collectives.all_to_all_s(group, kv_bytes + q_bytes)
    kind = np.asarray(plan.context_parallel)
    ring_like = (kind == ContextParallel.RING) | (kind == ContextParallel.HIERARCHICAL)
    whole = np.where(kind == ContextParallel.ALL_GATHER, gather, exchange)
    forward = np.where(ring_like, np.maximum(ring - 0.8 * core.forward_s, 0.1 * ring), whole)
    backward = np.where(
        ring_like, np.maximum(2.0 * ring - 0.8 * core.backward_s, 0.1 * ring), 1.5 * whole
    )
    used = plan.cp > 1
    return np.where(used, forward, 0.0), np.where(used, backward, 0.0)


def _ep_exposed_s(shop: Shop, block: Block, feed_forward: Kernels) -> Any:
    """Exposed expert-parallel communication of a pass: dispatch and combine, plus etp's gather."""
    ff = block.feed_forward
    if not isinstance(ff, Experts):
        return 0.0
    plan, stack = shop.job.plan, shop.stack
    group = collectives.place(
        shop.job.cluster,
        plan.ep,
        plan.etp,
        scale_up=shop.hardware.scale_up * stack.ep_rate,
        scale_out=shop.hardware.scale_out * stack.ep_rate,
        latency=shop.stack.network_latency,
    )
    tokens = shop.tokens / plan.tp
    narrow = np.where(np.asarray(plan.precision) >= Precision.FP8, 0.75, 1.0)
    hidden_bytes = tokens * shop.job.model.hidden_size * kernels.activation_bytes(plan)
    share: Any = 1.0
    if stack.expert_dedup:
        domains = np.maximum(group.outer, 1)
        share = domains * (1.0 - (1.0 - 1.0 / domains) ** ff.top_k) / ff.top_k
    exchange = 2.0 * collectives.all_to_all_s(
        group, hidden_bytes * ff.top_k * narrow, outer_bytes_share=share
    )
    exchange = np.where(plan.ep > 1, exchange, 0.0)
    etp_group = collectives.place(
        shop.job.cluster,
        plan.etp,
        1,
        scale_up=shop.hardware.scale_up,
        scale_out=shop.hardware.scale_out,
    )
    gather = 2.0 * collectives.all_gather_s(etp_group, hidden_bytes * ff.top_k * plan.etp)
    exchange = exchange + np.where(plan.etp > 1, gather, 0.0)
    behind = stack.overlap_ep * np.minimum(exchange, feed_forward.total_s / 3.0)
    return exchange - np.where(plan.overlap_ep, behind, 0.0)


def _recompute_s(shop: Shop, block: Block, parts: tuple[Kernels, Kernels, Kernels, Kernels]) -> Any:
    """Forward kernels that run again in the backward pass of one block."""
    attention_products, feed_forward, core, between = parts
    plan = shop.job.plan
    modules = np.asarray(plan.recompute_modules)

    def covers(module: RecomputeModule) -> Any:
        return (modules & module) > 0

    unfused_core = np.where(plan.flash_attention, 0.0, core.forward_s)
    selective = np.where(covers(RecomputeModule.CORE_ATTENTION), unfused_core, 0.0)
    mlp = RecomputeModule.MOE if block.is_moe else RecomputeModule.MLP
    selective = selective + np.where(covers(mlp), feed_forward.forward_s, 0.0)
    light = covers(RecomputeModule.NORM) * 0.4 + covers(RecomputeModule.MOE_ACTIVATION) * 0.3
    selective = selective + light * between.forward_s
    if block.attention.is_latent:
        up = covers(RecomputeModule.MLA_UP_PROJECTION)
        selective = selective + np.where(up, 0.4 * attention_products.forward_s, 0.0)
    alternate = (attention_products.forward_s + feed_forward.forward_s) / 2.0 + between.forward_s
    selective = selective + np.where(covers(RecomputeModule.ALTERNATE_MATMULS), alternate, 0.0)
    full = attention_products.forward_s + feed_forward.forward_s
    full = full + core.forward_s + between.forward_s
    kind = np.asarray(plan.recompute)
    return np.where(
        kind == Recompute.FULL, full, np.where(kind == Recompute.SELECTIVE, selective, 0.0)
    )
