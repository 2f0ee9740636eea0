"""Structure partitioning (5.1): when context parallelism is legal, and when it pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.plan import ContextParallel, Recompute
from meshwright.rules.accepted import accepted_near
from meshwright.rules.model.dimensions import (
    any_remainder,
    any_size,
    attentions,
    head_counts,
    key_value_head_counts,
    listed,
    windows,
)
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
LONG_SEQUENCE = 8192
_TE_CONTEXT = (
    "TransformerEngine transformer_engine/pytorch/attention/dot_product_attention/"
    "context_parallel.py (d0067d0d)"
)


def uses(job: Job, *algorithms: ContextParallel) -> Any:
    """True where cp > 1 and its algorithm is one of these."""
    chosen = np.isin(job.plan.context_parallel, [int(a) for a in algorithms])
    return (job.plan.cp > 1) & chosen


@rule(
    "MOD160",
    "cp although the sequence is shorter than the hidden size",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-Bridge docs/performance-guide.md (067f987d) per-tensor sharding",
    reads=("cp",),
    confidence="doc",
    needs=("model", "seq_len"),
)
def sequence_long_enough_for_cp(job: Job) -> Mask:
    """Cutting a short sequence makes narrow shards with little reuse of weights.

    Fails: plan(model="llama-3-70b", cp=2, seq_len=4096)
    Passes: plan(model="llama-3-70b", cp=2, seq_len=32768)
    """
    return (job.plan.cp > 1) & (job.workload.seq_len < job.model.hidden_size)


@sequence_long_enough_for_cp.message
def _(job: Job) -> str:
    seq_len, hidden = job.workload.seq_len, job.model.hidden_size
    return f"cp = {job.plan.cp} on {seq_len} tokens, fewer than hidden_size = {hidden}"


sequence_long_enough_for_cp.fix(always(cp=(1,)))


@rule(
    "MOD161",
    "Long sequences on full recompute without cp",
    severity=Severity.INFO,
    section=SECTION,
    source="Megatron-Bridge docs/performance-guide.md (067f987d) long sequence training; "
    "Megatron-LM megatron/core/transformer/moe/README.md best practices (d98e8a64) guideline 5",
    reads=("cp", "recompute", "dp"),
    confidence="doc",
    points=("recompute", "seq_len"),
)
def cp_before_full_recompute(job: Job) -> Mask:
    """Context parallelism divides activations without computing the forward pass twice.

    Fails: plan(seq_len=32768, recompute=Recompute.FULL)
    Passes: plan(seq_len=32768, recompute=Recompute.SELECTIVE, cp=4)
    """
    full = job.plan.recompute == int(Recompute.FULL)
    spare = (job.plan.cp == 1) & (job.plan.dp > 1)  # ranks that cp could take
    return full & spare & (job.workload.seq_len >= LONG_SEQUENCE)


@cp_before_full_recompute.message
def _(job: Job) -> str:
    return f"{job.workload.seq_len} tokens, cp = 1 and full recompute"


cp_before_full_recompute.fix(always(cp=(2, 4)))


def _legal_cp(job: Job, *, inner: bool = False) -> dict[str, tuple[int, ...]]:
    """The nearest all-to-all sizes that divide the heads of a tensor-parallel rank and the GPUs."""
    plan, name = job.plan, "cp_inner" if inner else "cp"
    whole = int(plan.cp) if inner else job.cluster.num_gpus // max(int(plan.tp * plan.pp), 1)
    counts = head_counts(job.model)

    def accepts(size: int) -> bool:
        return whole % size == 0 and all(n % (size * int(plan.tp)) == 0 for n in counts)

    return {name: accepted_near(int(getattr(plan, name)), accepts, limit=max(counts))}


@rule(
    "MOD172",
    "All-to-all cp does not divide the heads",
    severity=Severity.ERROR,
    section=SECTION,
    source=_TE_CONTEXT + " AttnFuncWithCPAndQKVOA2A; DeepSpeed deepspeed/sequence/layer.py "
    "(0.19.8); Jacobs et al. 2023 (arXiv 2309.14509) section 3.1",
    reads=("cp", "context_parallel", "tp"),
    confidence="read",
)
def heads_divide_by_ulysses(job: Job) -> Mask:
    """The all-to-all trades sequence for heads: each rank then needs whole heads, so tp*cp divides.

    Fails: plan(model="llama-3-8b", tp=8, cp=8, context_parallel=ContextParallel.ULYSSES)
    Passes: plan(model="llama-3-8b", tp=8, cp=4, context_parallel=ContextParallel.ULYSSES)
    Passes: plan(model="llama-3-8b", tp=8, cp=8, context_parallel=ContextParallel.RING)
    """
    over = job.plan.tp * np.asarray(job.plan.cp)
    return uses(job, ContextParallel.ULYSSES) & any_remainder(head_counts(job.model), over)


@heads_divide_by_ulysses.message
def _(job: Job) -> str:
    plan, heads = job.plan, listed(head_counts(job.model))
    return f"{heads} attention heads do not divide by tp*cp = {plan.tp}*{plan.cp}"


@heads_divide_by_ulysses.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _legal_cp(job)


@rule(
    "MOD174",
    "All-to-all cp fits no share of the key/value heads",
    severity=Severity.ERROR,
    section=SECTION,
    source="DeepSpeed runtime/sequence_parallel/ulysses_sp.py UlyssesSPAttentionHF (0.19.8)",
    reads=("cp", "context_parallel", "tp"),
    confidence="run",
)
def key_value_heads_fit_ulysses(job: Job) -> Mask:
    """The key/value heads of a rank are split over cp, or each is held by several; no other way.

    Some stacks refuse to hold them several times too.

    Fails: plan(num_attention_heads=36, num_key_value_heads=6, cp=4, context_parallel=2)
    Passes: plan(num_attention_heads=36, num_key_value_heads=12, cp=4, context_parallel=2)
    """
    return uses(job, ContextParallel.ULYSSES) & any_size(
        key_value_head_counts(job.model), lambda n: _unshareable(job, n)
    )


def _unshareable(job: Job, heads: int) -> Any:
    """True where cp neither divides nor is divided by the key/value heads of a tp rank."""
    own = np.maximum(heads // np.asarray(job.plan.tp), 1)
    return (own % job.plan.cp != 0) & (job.plan.cp % own != 0)


@key_value_heads_fit_ulysses.message
def _(job: Job) -> str:
    plan, heads = job.plan, listed(key_value_head_counts(job.model))
    return f"{heads} key/value heads over tp = {plan.tp} and an all-to-all of cp = {plan.cp}"


@key_value_heads_fit_ulysses.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    own = [max(n // int(job.plan.tp), 1) for n in key_value_head_counts(job.model)]

    def accepts(cp: int) -> bool:
        legal = all(n % (cp * int(job.plan.tp)) == 0 for n in head_counts(job.model))
        return legal and all(n % cp == 0 or cp % n == 0 for n in own)

    return {"cp": accepted_near(int(job.plan.cp), accepts, limit=max(head_counts(job.model)))}


@rule(
    "MOD176",
    "Hierarchical cp: the inner all-to-all does not divide the heads",
    severity=Severity.ERROR,
    section=SECTION,
    source="MindSpeed mindspeed/features_manager/context_parallel/context_parallel_feature.py "
    "(028de58c)",
    reads=("cp", "cp_inner", "context_parallel", "tp"),
    confidence="read",
)
def heads_divide_by_inner_cp(job: Job) -> Mask:
    """The inner level trades sequence for heads, so tp * cp_inner must divide the heads.

    Fails: plan(model="llama-3-8b", tp=8, cp=16, cp_inner=8, context_parallel=3, nodes=16)
    Passes: plan(model="llama-3-8b", tp=8, cp=16, cp_inner=4, context_parallel=3, nodes=16)
    """
    over = job.plan.tp * np.asarray(job.plan.cp_inner)
    misfit = any_remainder(head_counts(job.model), over)
    return uses(job, ContextParallel.HIERARCHICAL) & misfit


@heads_divide_by_inner_cp.message
def _(job: Job) -> str:
    plan, heads = job.plan, listed(head_counts(job.model))
    return f"{heads} attention heads do not divide by tp*cp_inner = {plan.tp}*{plan.cp_inner}"


@heads_divide_by_inner_cp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _legal_cp(job, inner=True)


@rule(
    "MOD178",
    "Hierarchical cp without an inner size",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/training/arguments.py validate_args and megatron/core/extensions/"
    "transformer_engine.py TEDotProductAttention (0.19.2)",
    reads=("cp", "cp_inner", "context_parallel"),
    confidence="run",
)
def hierarchical_cp_is_sized(job: Job) -> Mask:
    """The all-to-all level needs a size; one stack accepts none and attends to local chunks only.

    Fails: plan(cp=8, context_parallel=ContextParallel.HIERARCHICAL)
    Passes: plan(cp=8, cp_inner=4, context_parallel=ContextParallel.HIERARCHICAL)
    """
    return uses(job, ContextParallel.HIERARCHICAL) & (job.plan.cp_inner <= 1)


@hierarchical_cp_is_sized.message
def _(job: Job) -> str:
    return f"hierarchical cp = {job.plan.cp} with cp_inner = {job.plan.cp_inner}"


@hierarchical_cp_is_sized.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _legal_cp(job, inner=True)


@rule(
    "MOD179",
    "Hierarchical cp sizes do not multiply to cp",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)",
    reads=("cp", "cp_inner", "context_parallel"),
    confidence="run",
)
def inner_cp_divides_cp(job: Job) -> Mask:
    """The outer ring has cp / cp_inner members, which must be a whole number.

    Fails: plan(cp=8, cp_inner=3, context_parallel=ContextParallel.HIERARCHICAL)
    Passes: plan(cp=8, cp_inner=2, context_parallel=ContextParallel.HIERARCHICAL)
    """
    remainder = job.plan.cp % np.maximum(job.plan.cp_inner, 1) != 0
    return uses(job, ContextParallel.HIERARCHICAL) & remainder


@inner_cp_divides_cp.message
def _(job: Job) -> str:
    return f"cp_inner = {job.plan.cp_inner} does not divide cp = {job.plan.cp}"


@inner_cp_divides_cp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _legal_cp(job, inner=True)


@rule(
    "MOD180",
    "Windowed attention over ring cp",
    severity=Severity.WARNING,
    section=SECTION,
    source=_TE_CONTEXT + " attn_forward_func_with_cp",
    reads=("cp", "context_parallel"),
    confidence="read",
)
def window_needs_no_ring(job: Job) -> Mask:
    """A ring passes all keys and values round although a window needs only those nearby.

    Ring kernels (Transformer Engine, torch) refuse windows; all-gather and all-to-all take them.

    Fails: plan(window=4096, seq_len=32768, cp=4)
    Passes: plan(window=4096, seq_len=32768, cp=4, context_parallel=ContextParallel.ULYSSES)
    """
    windowed = any(w < job.workload.seq_len for w in windows(job.model))
    return windowed & uses(job, ContextParallel.RING, ContextParallel.HIERARCHICAL)


@window_needs_no_ring.message
def _(job: Job) -> str:
    seen = listed(windows(job.model))
    return f"windows of {seen} keys in {job.workload.seq_len} tokens over a ring of {job.plan.cp}"


window_needs_no_ring.fix(
    always(context_parallel=(ContextParallel.ALL_GATHER, ContextParallel.ULYSSES))
)


@rule(
    "MOD181",
    "Attention sinks over ring cp",
    severity=Severity.WARNING,
    section=SECTION,
    source=_TE_CONTEXT + " (learnable softmax)",
    reads=("cp", "context_parallel"),
    confidence="read",
)
def sinks_need_no_ring(job: Job) -> Mask:
    """A sink belongs into the denominator of the whole row once, a ring merges parts of the row.

    Merged as they are, the parts count it cp times. Transformer Engine therefore refuses sinks with
    anything but an all-to-all.

    Fails: plan(sinks=True, cp=4, seq_len=32768)
    Passes: plan(sinks=True, cp=4, seq_len=32768, context_parallel=ContextParallel.ULYSSES)
    """
    sinks = any(a.sinks for a in attentions(job.model))
    return sinks & uses(job, ContextParallel.RING, ContextParallel.HIERARCHICAL)


@sinks_need_no_ring.message
def _(job: Job) -> str:
    return f"attention sinks over a ring of cp = {job.plan.cp}"


sinks_need_no_ring.fix(always(context_parallel=(ContextParallel.ULYSSES,)))
