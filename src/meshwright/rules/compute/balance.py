"""Load balancing (6.3): stages, sequences and whole machines that must keep the same pace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.model.architecture import block_matmuls
from meshwright.model.count import parameters
from meshwright.plan.plan import ContextParallel, Plan, Schedule
from meshwright.plan.stages import stage_layers
from meshwright.rules.model.partitioning.context import uses
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.model.architecture import Block, Model
    from meshwright.plan.job import Job
    from meshwright.plan.stages import StageLayers
    from meshwright.rules.rule import Mask

SECTION = "6.3"
UNEVEN = 1.05  # slowest stage over the mean
VARIED = 0.3  # coefficient of variation of document lengths
STRAGGLER_GPUS = 1024
_ENDS = ("first_stage_layers", "last_stage_layers", "embedding_in_split", "loss_in_split")
_SPLIT = ("pp", "layout", *_ENDS, "vocab_over_pipeline")
_CHUNKS = ("vpp", "schedule")


@rule(
    "CMP301",
    "Embedding and head unbalance the end stages",
    severity=Severity.WARNING,
    section=SECTION,
    source="Llama 3 (arXiv 2407.21783) section 3.3.2; Megatron-Bridge "
    "docs/performance-guide.md (067f987d)",
    reads=(*_SPLIT, *_CHUNKS),
    confidence="paper",
    needs=("model",),
    points=("pp", *_ENDS),
)
def ends_are_accounted_for(job: Job) -> Mask:
    """The last stage also computes head and loss; the first holds embedding and most activations.

    Where the head weighs half a layer or more, count it in the split: Llama 3 405B takes one layer
    from both ends.

    Fails: plan(model="llama-3-8b", pp=4)
    Passes: plan(model="llama-3-8b", pp=4, first_stage_layers=7, last_stage_layers=7)
    Passes: plan(num_hidden_layers=30, pp=4, embedding_in_split=True, loss_in_split=True)
    """
    plan = job.plan
    heavy = job.model.vocab_size * job.model.hidden_size > 0.5 * _layer_parameters(job.model)
    stated = (plan.first_stage_layers > 0) | (plan.last_stage_layers > 0)
    counted = np.logical_or(plan.embedding_in_split, plan.loss_in_split) | plan.vocab_over_pipeline
    spread = stated | counted | (plan.layout is not None)
    uneven = (plan.pp > 1) & heavy & np.logical_not(spread)
    return uneven & (imbalance(job) > UNEVEN) if np.any(uneven) else uneven


def _layer_parameters(model: Model) -> float:
    """Mean parameters of a layer that one token passes."""
    count = parameters(model, mtp=False)
    passed = count.active - count.embedding - count.head
    return passed / max(model.num_hidden_layers, 1)


@ends_are_accounted_for.message
def _(job: Job) -> str:
    head = job.model.vocab_size * job.model.hidden_size
    layers = head / _layer_parameters(job.model)
    excess = float(imbalance(job)) - 1
    return (
        f"the head weighs {layers:.1f} layers, and the split over pp = {job.plan.pp} ignores it: "
        f"the last stage has {excess:.1%} more work than the mean"
    )


@ends_are_accounted_for.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    places = job.model.num_hidden_layers + 2
    if places % int(job.plan.pp * job.plan.vpp):
        return {}
    return {"embedding_in_split": (True,), "loss_in_split": (True,)}


def _forward_flops(block: Block, model: Model, seq_len: int) -> float:
    """FLOPs of a block's forward pass a token: matrix products and causal attention scores."""
    top_k = getattr(block.feed_forward, "top_k", 1)
    products = sum(
        2 * m.in_features * m.out_features * (top_k if m.group == "expert" else 1)
        for m in block_matmuls(block, model.hidden_size)
    )
    a = block.attention
    seen = min(a.window or seq_len, seq_len / 2)
    return products + 2 * a.num_attention_heads * (a.head_dim + a.v_head_dim) * seen


def _stage_flops(job: Job, stage: StageLayers) -> Any:
    """Forward FLOPs a token of one pipeline rank."""
    model = job.model
    per_kind = [_forward_flops(kind, model, job.workload.seq_len) for kind in model.kinds]
    blocks = sum(n * f for n, f in zip(stage.counts, per_kind, strict=True))
    head = 2.0 * model.hidden_size * model.vocab_size
    everywhere = np.asarray(job.plan.vocab_over_pipeline)
    heads = np.where(everywhere, 1.0 / np.asarray(job.plan.pp), stage.head) + stage.mtp
    return blocks + heads * head


def imbalance(job: Job) -> Any:
    """FLOPs of the heaviest pipeline rank over the mean of all ranks."""
    split = {name: getattr(job.plan, name) for name in (*_SPLIT, *_CHUNKS)}
    split["vpp"] = np.minimum(split["vpp"], job.model.num_hidden_layers)
    job = job.with_plan(Plan(**split))
    last = job.plan.pp - 1
    most = min(int(np.max(last)), 2 * job.model.num_hidden_layers)  # beyond lie empty ranks
    stages = [stage_layers(job, np.minimum(rank, last)) for rank in (last, *range(most))]
    heaviest = np.maximum.reduce([np.asarray(_stage_flops(job, s)) for s in stages])
    model = job.model
    heads = 1 + sum(run.count for run in model.mtp)
    seq_len = job.workload.seq_len
    runs = (*model.runs, *model.mtp)
    whole = sum(run.count * _forward_flops(run.block, model, seq_len) for run in runs)
    whole += heads * 2.0 * model.hidden_size * model.vocab_size
    copies = np.where(job.plan.schedule == int(Schedule.DUALPIPE), 2, 1)
    return heaviest * np.asarray(job.plan.pp) / (whole * copies)


@rule(
    "CMP302",
    "Stages unequal",
    severity=Severity.WARNING,
    section=SECTION,
    source="pipeline arithmetic; Narayanan et al. 2021 (arXiv 2104.04473)",
    reads=(*_SPLIT, *_CHUNKS),
    confidence="heuristic",
    needs=("model",),
    said_by=("CMP301",),
    points=("pp", "vpp", "layout", *_ENDS),
)
def stages_are_equal(job: Job) -> Mask:
    """The pipeline runs at the pace of its heaviest stage, and the others wait for it.

    Weighed by the FLOPs of layers and head.

    Fails: plan(model="llama-3-8b", pp=8, tp=2)
    Passes: plan(model="llama-3-70b", pp=2, tp=8)
    """
    return (job.plan.pp > 1) & (imbalance(job) > UNEVEN)


@stages_are_equal.message
def _(job: Job) -> str:
    excess = float(imbalance(job)) - 1
    return f"the heaviest of pp = {job.plan.pp} stages has {excess:.1%} more work than the mean"


@stages_are_equal.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    plan = job.plan
    counted = {"embedding_in_split": True, "loss_in_split": True}
    if imbalance(job.with_plan(plan.replace(**counted))) <= UNEVEN:
        return {name: (value,) for name, value in counted.items()}
    return {}


# Sequences


@rule(
    "CMP312",
    "Causal cp without balanced chunks",
    severity=Severity.WARNING,
    section=SECTION,
    source="Brandon et al. 2023, Striped Attention (arXiv 2311.09431); PyTorch "
    "torch/distributed/tensor/experimental/_context_parallel/_load_balancer.py (2.13.0)",
    reads=("cp", "context_parallel"),
    confidence="paper",
)
def causal_chunks_are_balanced(job: Job) -> Mask:
    """With one contiguous chunk a rank the last does about twice the mean work of a causal mask.

    Zig-zag chunks give every rank an early and a late piece. An all-to-all needs no balance.

    Fails: plan(cp=4, seq_len=32768, context_balancer="none")
    Passes: plan(cp=4, seq_len=32768, context_balancer="zigzag")
    """
    unbalanced = job.workload.runtime.context_balancer == "none"
    return unbalanced & uses(job, ContextParallel.RING, ContextParallel.ALL_GATHER)


@causal_chunks_are_balanced.message
def _(job: Job) -> str:
    cp = int(job.plan.cp)
    return f"cp = {cp} contiguous chunks: the last has {2 - 1 / cp:.2f} times the mean work"


causal_chunks_are_balanced.fix(always(context_balancer=("zigzag",)))


@rule(
    "CMP314",
    "Zig-zag balance on packed documents",
    severity=Severity.WARNING,
    section=SECTION,
    source="torchtitan config/configs.py context_parallel_load_balancer (0.3.0)",
    reads=("cp", "context_parallel"),
    confidence="read",
)
def packed_chunks_are_balanced(job: Job) -> Mask:
    """Zig-zag chunks balance one causal triangle, not the many small ones of masked documents.

    Fails: plan(cp=4, seq_len=32768, packed_mean_len=2048.0)
    Passes: plan(cp=4, seq_len=32768, packed_mean_len=2048.0, context_balancer="documents")
    """
    work = job.workload
    packed = work.packed_mean_len is not None and work.packed_mean_len < work.seq_len
    zigzag = work.runtime.context_balancer in (None, "zigzag")
    return (packed and zigzag) & uses(job, ContextParallel.RING, ContextParallel.ALL_GATHER)


@packed_chunks_are_balanced.message
def _(job: Job) -> str:
    work = job.workload
    return f"documents of {work.packed_mean_len:g} tokens in {work.seq_len} over cp = {job.plan.cp}"


packed_chunks_are_balanced.fix(always(context_balancer=("documents",)))


@rule(
    "CMP316",
    "Sequences of varying length not packed",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-Bridge docs/performance-guide.md (067f987d) sequence packing",
    confidence="doc",
)
def varied_documents_are_packed(job: Job) -> Mask:
    """Padding wastes time inside a micro-batch, and replicas wait for the one with the longest.

    Judged where the spread of lengths is stated.

    Fails: plan(doc_len_cv=0.8)
    Passes: plan(doc_len_cv=0.8, packed_mean_len=1000.0)
    Passes: plan(doc_len_cv=0.8, packed=True)
    """
    work = job.workload
    packed = work.packed_mean_len is not None or bool(work.loading.packed)
    return not packed and (work.loading.doc_len_cv or 0.0) > VARIED


@varied_documents_are_packed.message
def _(job: Job) -> str:
    return f"lengths vary by {job.workload.loading.doc_len_cv:.0%} of their mean and are padded"


varied_documents_are_packed.fix(always(packed=(True,)))


# Machines


@rule(
    "CMP317",
    "No straggler detection at scale",
    severity=Severity.INFO,
    section=SECTION,
    source="MegaScale (arXiv 2402.15627) section 5; Llama 3 (arXiv 2407.21783) section 3.3.4",
    confidence="paper",
)
def stragglers_are_found(job: Job) -> Mask:
    """One slow GPU or link slows every synchronous step, and nobody sees which.

    Fails: plan(nodes=128, straggler_detection=False)
    Passes: plan(nodes=128, straggler_detection=True)
    """
    watched = job.workload.runtime.straggler_detection
    return job.cluster.num_gpus >= STRAGGLER_GPUS and watched is False


@stragglers_are_found.message
def _(job: Job) -> str:
    return f"{job.cluster.num_gpus} GPUs without straggler detection"


stragglers_are_found.fix(always(straggler_detection=(True,)))
