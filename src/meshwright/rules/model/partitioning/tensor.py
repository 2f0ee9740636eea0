"""Structure partitioning (5.1): what tensor parallelism must divide, and how far it should go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.accepted import accepted_near
from meshwright.rules.model.dimensions import (
    any_remainder,
    any_size,
    dense_widths,
    head_counts,
    key_value_head_counts,
    listed,
    uneven_groups,
)
from meshwright.rules.nearest import divisors
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
THIN_SHARD = 1024  # hidden_size / tp below which products are small and launches dominate


@rule(
    "MOD101",
    "Attention heads not divisible by tp",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2); torchtitan "
    "models/common/decoder.py (0.3.0)",
    reads=("tp",),
    confidence="run",
)
def heads_divide_by_tp(job: Job) -> Mask:
    """Tensor parallelism gives every rank whole heads, so tp must divide their number.

    Whatever the tp, key/value heads are shared by equally many query heads.

    Fails: plan(model="llama-3-8b", tp=3)
    Fails: plan(model="llama-3-8b", num_key_value_heads=6, num_attention_heads=64, tp=2)
    Passes: plan(model="llama-3-8b", tp=4)
    """
    return any_remainder(head_counts(job.model), job.plan.tp) | bool(uneven_groups(job.model))


@heads_divide_by_tp.message
def _(job: Job) -> str:
    for queries, groups in uneven_groups(job.model):
        return f"{queries} attention heads cannot share {groups} key/value heads evenly"
    return f"{listed(head_counts(job.model))} attention heads do not divide by tp = {job.plan.tp}"


@heads_divide_by_tp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    if uneven_groups(job.model):
        return {}  # a fault of the model, which no tp mends
    return {"tp": _legal_tp(job, head_counts(job.model))}


def _legal_tp(job: Job, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The nearest tp that divide the sizes and the GPUs."""

    def accepts(tp: int) -> bool:
        return job.cluster.num_gpus % tp == 0 and all(size % tp == 0 for size in sizes)

    return accepted_near(int(job.plan.tp), accepts, limit=job.cluster.num_gpus)


@rule(
    "MOD102",
    "Key/value heads neither multiple nor divisor of tp",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)",
    reads=("tp",),
    confidence="run",
)
def key_value_heads_fit_tp(job: Job) -> Mask:
    """Each rank needs the key/value heads of its query heads: whole ones, or one that it shares.

    With fewer key/value heads than ranks each head is held by tp / heads of them; anything else
    would cut a group of query heads across its key/value head. Some stacks refuse sharing too.

    Fails: plan(model="llama-3-8b", num_key_value_heads=12, num_attention_heads=48, tp=8)
    Passes: plan(model="llama-3-8b", num_key_value_heads=12, num_attention_heads=48, tp=4)
    Passes: plan(model="llama-3-8b", tp=16)
    """
    tp = job.plan.tp
    heads = key_value_head_counts(job.model)
    return any_size(heads, lambda n: (n % tp != 0) & (tp % n != 0))


@key_value_heads_fit_tp.message
def _(job: Job) -> str:
    heads = listed(key_value_head_counts(job.model))
    return f"{heads} key/value heads and tp = {job.plan.tp}: neither divides the other"


@key_value_heads_fit_tp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    heads, kv_heads = head_counts(job.model), key_value_head_counts(job.model)

    def accepts(tp: int) -> bool:
        fits = all(kv % tp == 0 or tp % kv == 0 for kv in kv_heads)
        return fits and job.cluster.num_gpus % tp == 0 and all(h % tp == 0 for h in heads)

    return {"tp": accepted_near(int(job.plan.tp), accepts, limit=job.cluster.num_gpus)}


@rule(
    "MOD106",
    "Key/value heads replicated over tp",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/attention.py Attention.__init__ (0.19.2)",
    reads=("tp",),
    confidence="read",
)
def key_value_heads_replicated(job: Job) -> Mask:
    """With tp beyond the key/value heads, K and V are projected, stored and reduced several times.

    The memory that further tensor parallelism saves shrinks accordingly; some stacks refuse it.

    Fails: plan(model="llama-3-8b", tp=16)
    Passes: plan(model="llama-3-8b", tp=8)
    """
    return any_size(key_value_head_counts(job.model), lambda n: job.plan.tp > n)


@key_value_heads_replicated.message
def _(job: Job) -> str:
    heads = min(key_value_head_counts(job.model))
    return f"tp = {job.plan.tp} over {heads} key/value heads: each is held {job.plan.tp / heads:g}x"


@key_value_heads_replicated.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"tp": (min(key_value_head_counts(job.model)),)}


@rule(
    "MOD108",
    "Feed-forward width not divisible by tp",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/utils.py divide, used by tensor_parallel layers (0.19.2)",
    reads=("tp",),
    confidence="run",
)
def width_divides_by_tp(job: Job) -> Mask:
    """The inner width of dense feed-forward layers and of shared experts is split over tp.

    Fails: plan(model="llama-3-8b", intermediate_size=14340, tp=8)
    Passes: plan(model="llama-3-8b", intermediate_size=14336, tp=8)
    """
    return any_remainder(dense_widths(job.model), job.plan.tp)


@width_divides_by_tp.message
def _(job: Job) -> str:
    widths = listed(dense_widths(job.model))
    return f"the feed-forward width {widths} does not divide by tp = {job.plan.tp}"


@width_divides_by_tp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"tp": _legal_tp(job, (*head_counts(job.model), *dense_widths(job.model)))}


@rule(
    "MOD110",
    "Padded vocabulary not divisible by tp",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM core/tensor_parallel layers, training/vocab_utils.py (0.19.2)",
    reads=("tp", "padded_vocab_size", "vocab_parallel"),
    confidence="run",
)
def vocabulary_divides_by_tp(job: Job) -> Mask:
    """A vocabulary-parallel embedding gives every rank as many rows, so tp must divide them.

    Judged only where the padded size is stated; otherwise padding is assumed to see to it. Fewer
    rows than the vocabulary has are no padding.

    Fails: plan(vocab_size=50257, padded_vocab_size=50257, tp=8)
    Passes: plan(vocab_size=50257, padded_vocab_size=51200, tp=8)
    """
    plan = job.plan
    rows = plan.padded_vocab_size
    split = plan.vocab_parallel & (rows % plan.tp != 0)
    return (rows > 0) & (split | (rows < job.model.vocab_size))


@vocabulary_divides_by_tp.message
def _(job: Job) -> str:
    plan = job.plan
    if plan.padded_vocab_size < job.model.vocab_size:
        return f"{plan.padded_vocab_size} rows hold no vocabulary of {job.model.vocab_size}"
    return f"a vocabulary of {plan.padded_vocab_size} rows does not divide by tp = {plan.tp}"


@vocabulary_divides_by_tp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    unit = 128 * int(job.plan.tp)
    return {"padded_vocab_size": (-(-job.model.vocab_size // unit) * unit,)}


@rule(
    "MOD158",
    "tp wider than the fast domain",
    severity=Severity.WARNING,
    section=SECTION,
    source="Narayanan et al. 2021 (arXiv 2104.04473) takeaway 1; Megatron-Bridge "
    "docs/performance-guide.md (067f987d)",
    reads=("tp",),
    confidence="doc",
)
def tp_within_fast_domain(job: Job) -> Mask:
    """Tensor parallelism has four or more collectives a layer on the critical path.

    Beyond the GPUs of the innermost link they cross the network; pipeline stages cross it better.

    Fails: plan(model="llama-3-70b", tp=16)
    Passes: plan(model="llama-3-70b", tp=8)
    """
    return job.plan.tp > job.cluster.scale_up_domain


@tp_within_fast_domain.message
def _(job: Job) -> str:
    return f"tp = {job.plan.tp} exceeds the {job.cluster.scale_up_domain} GPUs of the fast domain"


@tp_within_fast_domain.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    domain = job.cluster.scale_up_domain
    return {"tp": accepted_near(domain + 1, lambda tp: domain % tp == 0, limit=domain)}


@rule(
    "MOD159",
    "tp shards too thin",
    severity=Severity.INFO,
    section=SECTION,
    source="Megatron-Bridge docs/performance-guide.md (067f987d) performance tips; the threshold "
    "is a heuristic",
    reads=("tp",),
    confidence="heuristic",
)
def tp_shards_thick_enough(job: Job) -> Mask:
    """Narrow shards make small matrix products, and launching them takes longer than they do.

    Fails: plan(model="llama-3-8b", tp=8)
    Passes: plan(model="llama-3-8b", tp=4)
    """
    return (job.plan.tp > 1) & (job.model.hidden_size // job.plan.tp < THIN_SHARD)


@tp_shards_thick_enough.message
def _(job: Job) -> str:
    share = job.model.hidden_size // job.plan.tp
    return f"hidden_size / tp = {job.model.hidden_size} / {job.plan.tp} = {share} < {THIN_SHARD}"


@tp_shards_thick_enough.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    most = max(1, job.model.hidden_size // THIN_SHARD)
    legal = [tp for tp in divisors(int(job.plan.tp)) if tp <= most]
    return {"tp": (max(legal),)}
