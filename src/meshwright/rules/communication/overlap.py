"""COM2xx, second part: how many bytes move, and whether arithmetic can hide them.

Section 7.2 of the guidelines. The comparisons are of rates alone (FLOP/s against bytes/s), at the
GPU's peak; the cost model gives the exposed time itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_duration, format_rate
from meshwright.model.architecture import Experts
from meshwright.plan.job import num_microbatches, shard_group
from meshwright.plan.plan import ContextParallel
from meshwright.rules.estimate import (
    data_parallel_bytes_per_s,
    dense_gradient_bytes,
    group_bytes_per_s,
    hop_bytes_per_s,
    peak_flops,
    step_time_s,
)
from meshwright.rules.nearest import divisors
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

ACTIVATION_BYTES = 2
LATENCY_BOUND_BYTES = 65536
PIPELINE_SHARE = 0.2
NOTICEABLE_SHARE = 0.05  # of a step


def _local_tokens(job: Job) -> Any:
    """Tokens of a micro-batch on one context-parallel rank."""
    return job.plan.micro_batch_size * job.workload.seq_len / job.plan.cp


# Pipeline


@rule(
    "COM209",
    "Pipeline sends the same activations tp times",
    severity=Severity.WARNING,
    section="7.2",
    source="Megatron-LM megatron/core/pipeline_parallel/schedules.py (0.19.2), tensor_shape; "
    "Narayanan et al. 2021 (arXiv 2104.04473) section 4.1",
    reads=("pp", "tp", "sequence_parallel"),
    confidence="read",
    said_by=("MOD303",),
)
def pipeline_sends_shares(job: Job) -> Mask:
    """Without sequence parallelism each tp rank holds, and sends, the whole stage output.

    Fails: plan(pp=2, tp=4, sequence_parallel=False)
    Passes: plan(pp=2, tp=4, sequence_parallel=True)
    """
    p = job.plan
    return (p.pp > 1) & (p.tp > 1) & np.logical_not(p.sequence_parallel)


@pipeline_sends_shares.message
def _(job: Job) -> str:
    size = _local_tokens(job) * job.model.hidden_size * ACTIVATION_BYTES
    whole = format_bytes(float(size))
    return f"each of tp {job.plan.tp} ranks sends {whole} a micro-batch, not its share"


pipeline_sends_shares.fix(always(sequence_parallel=(True,)))


@rule(
    "COM210",
    "Residual stream in FP32 doubles pipeline traffic",
    severity=Severity.INFO,
    section="7.2",
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2), fp32_residual",
    reads=("pp", "param_bytes"),
    confidence="read",
)
def residual_is_narrow(job: Job) -> Mask:
    """Stages exchange the residual stream in its own width.

    Fails: plan(pp=4, residual_bytes=4)
    Passes: plan(pp=4, residual_bytes=2)
    """
    width = job.workload.runtime.residual_bytes
    return False if width is None else (job.plan.pp > 1) & (width > job.plan.param_bytes)


@residual_is_narrow.message
def _(job: Job) -> str:
    width = job.workload.runtime.residual_bytes
    return f"pp {job.plan.pp} exchanges {width} bytes a value, weights have {job.plan.param_bytes}"


residual_is_narrow.fix(always(residual_bytes=(2,)))


def _pipeline_s(job: Job) -> Any:
    """Seconds a rank spends sending activations and their gradients in a step, unhidden."""
    p = job.plan
    share = np.where(p.sequence_parallel, p.tp, 1)
    message = _local_tokens(job) * job.model.hidden_size * ACTIVATION_BYTES / share
    rate = hop_bytes_per_s(job.cluster, p.pp, p.tp * p.cp * p.dp)
    return 2 * p.vpp * num_microbatches(job) * message / rate


@rule(
    "COM218",
    "Interleaving floods a slow pipeline link",
    severity=Severity.WARNING,
    section="7.2",
    source="Narayanan et al. 2021 (arXiv 2104.04473) section 2.2.2",
    reads=("tp", "cp", "dp", "pp", "vpp", "micro_batch_size", "sequence_parallel", "precision"),
    confidence="paper",
)
def interleaving_fits_link(job: Job) -> Mask:
    """With vpp chunks a rank, activations cross between ranks vpp times as often.

    Against the step's arithmetic (as stated, or at 40% of peak) the transfers should stay small.

    Fails: plan(pp=4, vpp=8, net_bytes_per_s=1e9)
    Passes: plan(pp=4, vpp=2, net_bytes_per_s=50e9)
    """
    p = job.plan
    return (p.pp > 1) & (p.vpp > 1) & (_pipeline_s(job) > PIPELINE_SHARE * step_time_s(job))


@interleaving_fits_link.message
def _(job: Job) -> str:
    p = job.plan
    rate = hop_bytes_per_s(job.cluster, p.pp, p.tp * p.cp * p.dp)
    return (
        f"pp {p.pp} with vpp {p.vpp} sends for {format_duration(float(_pipeline_s(job)))} at "
        f"{format_rate(float(rate))} in a step of {format_duration(float(step_time_s(job)))}"
    )


@interleaving_fits_link.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    each = _pipeline_s(job) / job.plan.vpp
    fitting = PIPELINE_SHARE * step_time_s(job) / each
    return {"vpp": (max(int(fitting), 1),)}


# Gradients and parameters


@rule(
    "COM212",
    "Gradient reduction not overlapped",
    severity=Severity.WARNING,
    section="7.2",
    source="Megatron-Bridge docs/performance-guide.md (067f987d); PyTorch DDP (arXiv 2006.15704) "
    "section 3.2.3",
    reads=("dp", "cp", "tp", "pp", "overlap_grad_reduce", "reduce_bytes", "lora_rank", "precision"),
    confidence="doc",
    needs=("model", "seq_len"),
    points=("overlap_grad_reduce", "dp"),
)
def reduction_is_overlapped(job: Job) -> Mask:
    """Gradients of late layers are ready while early layers still compute theirs.

    Reducing them bucket by bucket hides most of the traffic behind the backward pass. Told where
    the reduction takes a noticeable share of the step.

    Fails: plan(dp=64, global_batch_size=64, seq_len=2048, overlap_grad_reduce=False)
    Passes: plan(dp=64, global_batch_size=64, seq_len=2048, overlap_grad_reduce=True)
    """
    p = job.plan
    plain = (p.dp * p.cp > 1) & np.logical_not(p.overlap_grad_reduce)
    return plain & (_reduction_s(job) > NOTICEABLE_SHARE * step_time_s(job))


def _reduction_s(job: Job) -> Any:
    """Seconds that reducing and spreading the dense gradients of a step takes over dp*cp ranks."""
    ranks = job.plan.dp * job.plan.cp
    moved = 2 * (ranks - 1) / ranks * dense_gradient_bytes(job)
    return moved / data_parallel_bytes_per_s(job)


@reduction_is_overlapped.message
def _(job: Job) -> str:
    p = job.plan
    share = float(_reduction_s(job) / step_time_s(job))
    return (
        f"gradients of dp {p.dp} x cp {p.cp} ranks are reduced after the backward pass: "
        f"{format_duration(float(_reduction_s(job)))}, {share:.0%} of the arithmetic of a step"
    )


reduction_is_overlapped.fix(always(overlap_grad_reduce=(True,)))


def _tokens_to_hide_gathers(job: Job) -> Any:
    """Tokens a rank and micro-batch at which ZeRO-3's traffic takes as long as the arithmetic.

    A parameter costs 6 bytes (two gathers, one scatter, of 2 bytes) and 6 FLOP a token; half of
    the ratio, since kernels do not reach peak.
    """
    return 0.5 * peak_flops(job) / data_parallel_bytes_per_s(job)


def cannot_hide_gathers(job: Job) -> Any:
    """True where a micro-batch lacks the tokens to hide ZeRO-3's traffic behind its arithmetic."""
    return _local_tokens(job) < _tokens_to_hide_gathers(job)


@rule(
    "COM216",
    "ZeRO-3 gathers cannot hide",
    severity=Severity.WARNING,
    section="7.2",
    source="bytes and FLOP a parameter; ZeRO (arXiv 1910.02054) section 7",
    reads=("zero_stage", "micro_batch_size", "cp", "dp", "tp", "dp_replicate", "precision"),
    confidence="arithmetic",
    needs=("seq_len",),
    said_by=("COM330", "COM331"),
)
def gathers_hide_behind_compute(job: Job) -> Mask:
    """Each layer moves 6 bytes and computes 6 FLOP times tokens for every parameter.

    So a rank needs about as many tokens a micro-batch as its FLOP/s exceed the bytes/s of the
    group. More tokens, sharding inside the fast domain, or tp and pp lower the need.

    Fails: plan(zero_stage=3, micro_batch_size=1, seq_len=1024, net_bytes_per_s=12.5e9, tp=8)
    Passes: plan(zero_stage=3, micro_batch_size=4, seq_len=8192)
    """
    sharded = (job.plan.zero_stage == 3) & (shard_group(job.plan) > 1)
    return sharded & cannot_hide_gathers(job)


@gathers_hide_behind_compute.message
def _(job: Job) -> str:
    return (
        f"{_local_tokens(job):.0f} tokens a rank and micro-batch; at "
        f"{format_rate(float(data_parallel_bytes_per_s(job)))} ZeRO-3 needs "
        f"{_tokens_to_hide_gathers(job):.0f}"
    )


@gathers_hide_behind_compute.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    a_sequence = job.workload.seq_len / job.plan.cp
    return {"micro_batch_size": (int(np.ceil(_tokens_to_hide_gathers(job) / a_sequence)),)}


# Tensor, context and expert parallelism


@rule(
    "COM217",
    "Tensor-parallel collectives dominate the products",
    severity=Severity.WARNING,
    section="7.2",
    source="bytes and FLOP of a block after Korthikanti et al. 2022 (arXiv 2205.05198)",
    reads=("tp", "precision", "overlap_tp"),
    confidence="arithmetic",
)
def products_outweigh_collectives(job: Job) -> Mask:
    """A block moves about 8*s*b*h bytes for 24*s*b*h^2/tp FLOP of its forward pass.

    So h/tp must exceed FLOP/s over three times bytes/s. Take a smaller tp, overlap it, or use cp.

    Fails: plan(tp=16)
    Passes: plan(tp=16, overlap_tp=True)
    Passes: plan(model="llama-3-70b", tp=4)
    """
    p = job.plan
    narrow = job.model.hidden_size / p.tp < _width_to_hide_collectives(job, p.tp)
    return (p.tp > 1) & narrow & np.logical_not(p.overlap_tp)


def _width_to_hide_collectives(job: Job, tp: Any) -> Any:
    """hidden_size/tp at which a block's collectives take as long as its products."""
    return peak_flops(job) / (3 * group_bytes_per_s(job.cluster, tp, 1))


@products_outweigh_collectives.message
def _(job: Job) -> str:
    rate = group_bytes_per_s(job.cluster, job.plan.tp, 1)
    return (
        f"hidden_size {job.model.hidden_size} / tp {job.plan.tp} = "
        f"{job.model.hidden_size / job.plan.tp:.0f}, under "
        f"{_width_to_hide_collectives(job, job.plan.tp):.0f} at {format_rate(float(rate))}"
    )


@products_outweigh_collectives.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    smaller = np.array([1, *divisors(job.plan.tp)[:-1]])
    wide = job.model.hidden_size / smaller >= _width_to_hide_collectives(job, smaller)
    return {"tp": (int(smaller[wide | (smaller == 1)][-1]),), "overlap_tp": (True,)}


def _chunk_to_hide_ring(job: Job) -> Any:
    """Tokens of a chunk at which passing keys and values takes as long as attending to them."""
    p = job.plan
    kinds = [block.attention for block in job.model.kinds]
    ratio = max(a.num_key_value_heads / max(a.num_attention_heads, 1) for a in kinds)
    return peak_flops(job) / hop_bytes_per_s(job.cluster, p.cp, p.tp) * ratio


@rule(
    "COM215",
    "A ring attention step cannot hide its transfer",
    severity=Severity.WARNING,
    section="7.2",
    source="Ring Attention (arXiv 2310.01889) section 3",
    reads=("cp", "tp", "context_parallel", "precision"),
    confidence="paper",
    needs=("seq_len",),
)
def ring_hides_transfer(job: Job) -> Mask:
    """While a chunk of queries attends to one chunk of keys, the next must arrive.

    The chunk must hold FLOP/s over bytes/s tokens, times the share of key/value heads. Take a
    smaller cp, or Ulysses inside the fast domain with a ring across.

    Fails: plan(seq_len=16384, cp=16)
    Passes: plan(seq_len=131072, cp=8)
    Passes: plan(seq_len=16384, cp=16, context_parallel=ContextParallel.ALL_GATHER)
    """
    p = job.plan
    ring = (p.cp > 1) & (p.context_parallel == ContextParallel.RING)
    return ring & (job.workload.seq_len / p.cp < _chunk_to_hide_ring(job))


@ring_hides_transfer.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"chunks of seq_len {job.workload.seq_len} / cp {p.cp} = {job.workload.seq_len / p.cp:.0f} "
        f"tokens, under {_chunk_to_hide_ring(job):.0f} at "
        f"{format_rate(float(hop_bytes_per_s(job.cluster, p.cp, p.tp)))}"
    )


@ring_hides_transfer.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    fitting = job.workload.seq_len / _chunk_to_hide_ring(job)
    return {"cp": (1 << int(np.log2(max(fitting, 1))),)}


def _peer_bytes(job: Job) -> Any:
    """Bytes that a rank sends to one peer of the expert group in a dispatch."""
    p = job.plan
    routed = [b.feed_forward for b in job.model.kinds if isinstance(b.feed_forward, Experts)]
    top_k = min(experts.top_k for experts in routed)
    sent = _local_tokens(job) / p.tp * top_k * job.model.hidden_size * ACTIVATION_BYTES
    return sent / p.ep


@rule(
    "COM214",
    "All-to-all messages too small",
    severity=Severity.WARNING,
    section="7.2",
    source="latency against bandwidth; NCCL src/graph/tuning.cc (2.30.7) latency tables",
    reads=("ep", "micro_batch_size", "cp", "tp"),
    confidence="heuristic",
)
def dispatch_is_not_latency_bound(job: Job) -> Mask:
    """Below about 64 KiB a peer, a message costs its latency, whatever its size.

    Take a smaller ep, a larger micro-batch, or a dispatcher that joins messages.

    Fails: plan(model="qwen3-30b-a3b", ep=64, tp=8, cp=2, seq_len=1024)
    Passes: plan(model="qwen3-30b-a3b", ep=8, seq_len=4096)
    """
    if not job.model.is_moe:
        return False
    return (job.plan.ep > 1) & (_peer_bytes(job) < LATENCY_BOUND_BYTES)


@dispatch_is_not_latency_bound.message
def _(job: Job) -> str:
    return f"ep {job.plan.ep}: {format_bytes(float(_peer_bytes(job)))} to each peer in a dispatch"


@dispatch_is_not_latency_bound.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    factor = int(np.ceil(LATENCY_BOUND_BYTES / _peer_bytes(job)))
    return {"micro_batch_size": (int(job.plan.micro_batch_size) * factor,)}
