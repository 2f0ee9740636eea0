"""Model communication (5.3): overlaps and what they need, dispatchers, cp algorithms on links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.plan import ContextParallel
from meshwright.rules.model.dimensions import attentions, expert_counts, listed, routers
from meshwright.rules.model.partitioning.context import uses
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.3"
WIDE_RING, SHORT_CHUNK = 8, 4096  # ranks, tokens
WIDE_EP = 4
_BRIDGE_GUIDE = "Megatron-Bridge docs/performance-guide.md (067f987d)"
_MOE_GUIDE = "Megatron-LM megatron/core/transformer/moe/README.md"


@rule(
    "MOD301",
    "tp overlap without sequence parallelism",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2)",
    reads=("tp", "overlap_tp", "sequence_parallel"),
    confidence="run",
)
def tp_overlap_needs_sequence_parallel(job: Job) -> Mask:
    """A product can hide an all-gather or reduce-scatter piece by piece, but no all-reduce.

    Only sequence parallelism turns the all-reduces of tensor parallelism into those two.

    Fails: plan(tp=4, overlap_tp=True, sequence_parallel=False)
    Passes: plan(tp=4, overlap_tp=True, sequence_parallel=True)
    """
    plan = job.plan
    return (plan.tp > 1) & plan.overlap_tp & np.logical_not(plan.sequence_parallel)


@tp_overlap_needs_sequence_parallel.message
def _(job: Job) -> str:
    return f"overlap_tp with tp = {job.plan.tp} and sequence_parallel = False"


tp_overlap_needs_sequence_parallel.fix(always(sequence_parallel=(True,)))


@rule(
    "MOD302",
    "tp overlap has nothing to overlap",
    severity=Severity.INFO,
    section=SECTION,
    source="Megatron-Bridge training/comm_overlap.py CommOverlapConfig (0.6.2)",
    reads=("tp", "overlap_tp"),
    confidence="run",
)
def tp_overlap_needs_tp(job: Job) -> Mask:
    """Without tensor parallelism the overlap is silently off, and the expected gain never comes.

    Fails: plan(tp=1, overlap_tp=True)
    Passes: plan(tp=4, overlap_tp=True)
    """
    return (job.plan.tp == 1) & job.plan.overlap_tp


tp_overlap_needs_tp.message(lambda _: "overlap_tp with tp = 1")
tp_overlap_needs_tp.fix(always(overlap_tp=(False,)))


@rule(
    "MOD303",
    "tp without sequence parallelism",
    severity=Severity.WARNING,
    section=SECTION,
    source="Korthikanti et al. 2022 (arXiv 2205.05198) section 4.2",
    reads=("tp", "sequence_parallel"),
    confidence="paper",
)
def tp_wants_sequence_parallel(job: Job) -> Mask:
    """Activations of norms and dropouts stay whole on every tp rank.

    They keep 10*s*b*h bytes a layer that sequence parallelism would divide by tp, for the same
    bytes on the wire.

    Fails: plan(tp=4, sequence_parallel=False)
    Passes: plan(tp=4, sequence_parallel=True)
    """
    return (job.plan.tp > 1) & np.logical_not(job.plan.sequence_parallel)


@tp_wants_sequence_parallel.message
def _(job: Job) -> str:
    plan = job.plan
    tokens = job.workload.seq_len // int(plan.cp) * int(plan.micro_batch_size)
    mib = 10 * tokens * job.model.hidden_size / 2**20
    return f"tp = {plan.tp}: {mib:.0f} MiB a layer and micro-batch stay on every rank"


tp_wants_sequence_parallel.fix(always(sequence_parallel=(True,)))


@rule(
    "MOD307",
    "Expert overlap without expert parallelism",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)",
    reads=("ep", "overlap_ep"),
    confidence="run",
)
def expert_overlap_needs_ep(job: Job) -> Mask:
    """Without expert parallelism there is no all-to-all to hide.

    Fails: plan(model="mixtral-8x7b", ep=1, overlap_ep=True)
    Passes: plan(model="mixtral-8x7b", ep=8, overlap_ep=True)
    """
    return (job.plan.ep == 1) & job.plan.overlap_ep


expert_overlap_needs_ep.message(lambda _: "overlap_ep with ep = 1")
expert_overlap_needs_ep.fix(always(overlap_ep=(False,)))


@rule(
    "MOD318",
    "All-gather dispatcher at larger ep",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_MOE_GUIDE} token dispatching",
    reads=("ep",),
    confidence="doc",
)
def dispatcher_scales(job: Job) -> Mask:
    """The all-gather dispatcher sends every token to every rank, ep/top_k times what is needed.

    Judged where the dispatcher is stated.

    Fails: plan(model="qwen3-30b-a3b", ep=32, expert_dispatcher="allgather")
    Passes: plan(model="qwen3-30b-a3b", ep=32, expert_dispatcher="alltoall")
    """
    gathers = job.workload.runtime.expert_dispatcher == "allgather"
    top_k = min((e.top_k for e in routers(job.model)), default=0)
    return gathers & (job.plan.ep > max(WIDE_EP, top_k))


@dispatcher_scales.message
def _(job: Job) -> str:
    top_k = min(e.top_k for e in routers(job.model))
    times = job.plan.ep / top_k
    return f"ep = {job.plan.ep}, top_k = {top_k}: {times:g} times the bytes of an all-to-all"


dispatcher_scales.fix(always(expert_dispatcher=("alltoall",)))


@rule(
    "MOD319",
    "Several local experts without grouped products",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_MOE_GUIDE} best practices (d98e8a64); {_BRIDGE_GUIDE}",
    reads=("ep",),
    confidence="doc",
    needs=("model",),
)
def local_experts_are_grouped(job: Job) -> Mask:
    """A loop over the experts of a rank launches many small products.

    Fails: plan(model="qwen3-30b-a3b", ep=8, grouped_gemm=False)
    Passes: plan(model="qwen3-30b-a3b", ep=8, grouped_gemm=True)
    """
    looped = job.workload.runtime.grouped_gemm is False
    return looped & (max(expert_counts(job.model), default=0) // np.asarray(job.plan.ep) > 1)


@local_experts_are_grouped.message
def _(job: Job) -> str:
    return f"{listed(expert_counts(job.model))} experts over ep = {job.plan.ep}, one at a time"


local_experts_are_grouped.fix(always(grouped_gemm=(True,)))


@rule(
    "MOD320",
    "Ring cp with chunks too short to hide",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_BRIDGE_GUIDE} long sequence training; the threshold is a heuristic",
    reads=("cp", "context_parallel"),
    confidence="heuristic",
    needs=("seq_len",),
)
def ring_chunks_hide_transfers(job: Job) -> Mask:
    """Attention on a chunk grows with its square, the transfer with its length.

    Short chunks no longer cover the exchange of keys and values.

    Fails: plan(cp=16, seq_len=32768)
    Passes: plan(cp=16, seq_len=131072)
    """
    short = job.workload.seq_len // np.asarray(job.plan.cp) < SHORT_CHUNK
    return uses(job, ContextParallel.RING) & (job.plan.cp >= WIDE_RING) & short


@ring_chunks_hide_transfers.message
def _(job: Job) -> str:
    seq_len, cp = job.workload.seq_len, job.plan.cp
    return f"{seq_len} tokens over a ring of cp = {cp}: chunks of {seq_len // cp} tokens"


@ring_chunks_hide_transfers.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    longest = max(job.workload.seq_len // SHORT_CHUNK, 1)
    return {"cp": (1 << (longest.bit_length() - 1),)}


@rule(
    "MOD321",
    "All-gather cp with full multi-head attention",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_BRIDGE_GUIDE} cp_comm_type",
    reads=("cp", "context_parallel"),
    confidence="doc",
)
def gathered_heads_are_few(job: Job) -> Mask:
    """The gather of keys and values is exposed, and cheap only where they are few (GQA, MQA).

    Fails: plan(num_key_value_heads=32, cp=4, context_parallel=ContextParallel.ALL_GATHER)
    Passes: plan(num_key_value_heads=8, cp=4, context_parallel=ContextParallel.ALL_GATHER)
    """
    full = any(
        a.num_key_value_heads == a.num_attention_heads
        for a in attentions(job.model)
        if a.window is None
    )
    return full & uses(job, ContextParallel.ALL_GATHER)


@gathered_heads_are_few.message
def _(job: Job) -> str:
    heads = max(a.num_key_value_heads for a in attentions(job.model))
    return f"cp = {job.plan.cp} gathers keys and values of all {heads} heads"


gathered_heads_are_few.fix(always(context_parallel=(ContextParallel.RING,)))


@rule(
    "MOD322",
    "All-to-all cp across the network",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_BRIDGE_GUIDE} cp_comm_type",
    reads=("tp", "cp", "cp_inner", "context_parallel"),
    confidence="doc",
)
def all_to_all_within_domain(job: Job) -> Mask:
    """The all-to-all before and after attention is exposed, so it belongs on the innermost link.

    A hierarchical plan keeps the all-to-all there and puts a ring on the network.

    Fails: plan(tp=4, cp=4, context_parallel=ContextParallel.ULYSSES, seq_len=32768)
    Passes: plan(tp=2, cp=4, context_parallel=ContextParallel.ULYSSES, seq_len=32768)
    """
    plan, domain = job.plan, job.cluster.scale_up_domain
    flat = uses(job, ContextParallel.ULYSSES) & (plan.tp * plan.cp > domain)
    nested = uses(job, ContextParallel.HIERARCHICAL) & (plan.tp * plan.cp_inner > domain)
    return flat | nested


@all_to_all_within_domain.message
def _(job: Job) -> str:
    plan, domain = job.plan, job.cluster.scale_up_domain
    nested = plan.context_parallel == int(ContextParallel.HIERARCHICAL)
    inner = plan.cp_inner if nested else plan.cp
    return f"an all-to-all over tp*cp = {plan.tp}*{inner} ranks leaves the domain of {domain} GPUs"


@all_to_all_within_domain.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    inner = job.cluster.scale_up_domain // int(job.plan.tp)
    nested = job.plan.context_parallel == int(ContextParallel.HIERARCHICAL)
    if nested and inner > 1:
        return {"cp_inner": (inner,)}
    return {"context_parallel": (ContextParallel.RING,)}
