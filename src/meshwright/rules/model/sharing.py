"""Parameter sharing (5.2): tied weights, and state that is replicated where it could be sharded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.plan.job import expert_data_parallel
from meshwright.plan.plan import Precision
from meshwright.plan.stages import is_v_shaped
from meshwright.plan.words import word
from meshwright.rules.accepted import silencing
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.2"
LARGE_EMBEDDING = 2e8  # parameters


def embedding_parameters(job: Job) -> int:
    """Parameters of the input embedding, rows times width."""
    return job.model.vocab_size * (job.model.embedding_size or job.model.hidden_size)


@rule(
    "MOD205",
    "Tied embeddings across pipeline ends",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/core/distributed/finalize_model_grads.py "
    "_allreduce_word_embedding_grads (0.19.2)",
    reads=("pp", "schedule", "vocab_over_pipeline"),
    confidence="read",
)
def tied_embedding_stays_together(job: Job) -> Mask:
    """Both end stages hold the tied matrix and all-reduce its gradient at the end of every step.

    In V-shaped schedules both ends lie on the same rank. Some stacks refuse tying with pp.

    Fails: plan(model="llama-3-8b", tie_word_embeddings=True, pp=4)
    Passes: plan(model="llama-3-8b", tie_word_embeddings=False, pp=4)
    Passes: plan(tie_word_embeddings=True, pp=4, vpp=2, schedule=Schedule.ZB_V)
    """
    plan = job.plan
    large = job.model.tie_word_embeddings and embedding_parameters(job) > LARGE_EMBEDDING
    apart = (plan.pp > 1) & ~is_v_shaped(plan.schedule) & (plan.vocab_over_pipeline == 0)
    return large & apart


@tied_embedding_stays_together.message
def _(job: Job) -> str:
    millions = embedding_parameters(job) / 1e6
    return f"a tied embedding of {millions:.0f} M parameters on both ends of pp = {job.plan.pp}"


tied_embedding_stays_together.fix(always(pp=(1,), tie_word_embeddings=(False,)))


@rule(
    "MOD208",
    "Expert optimizer state not sharded",
    severity=Severity.INFO,
    section=SECTION,
    source="Megatron-LM megatron/core/parallel_state.py expert groups; "
    "core/optimizer/distrib_optimizer.py (0.19.2)",
    reads=("tp", "cp", "dp", "ep", "etp", "zero_stage", "dp_replicate"),
    confidence="run",
)
def expert_state_is_sharded(job: Job) -> Mask:
    """Expert state is sharded over the replicas of an expert, and with one replica not at all.

    Every rank then keeps 12 bytes and more of optimizer state per expert parameter, however large
    dp is.

    Fails: plan(model="qwen3-30b-a3b", ep=64)
    Passes: plan(model="qwen3-30b-a3b", ep=16)
    """
    plan = job.plan
    sharding = (plan.zero_stage >= 1) & (plan.dp * plan.cp > 1)
    return job.model.is_moe & sharding & (expert_data_parallel(plan) == 1)


@expert_state_is_sharded.message
def _(job: Job) -> str:
    plan = job.plan
    return f"ep*etp = {plan.ep * plan.etp} leaves one replica of each expert, dp = {plan.dp}"


@expert_state_is_sharded.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    smaller = [ep for ep in range(min(int(job.plan.ep) - 1, 4096), 0, -1) if job.plan.ep % ep == 0]
    return {"ep": silencing(expert_state_is_sharded, job, "ep", smaller)[:1]}


@rule(
    "MOD214",
    "8-bit weights without 8-bit products",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)",
    reads=("param_bytes", "precision", "base_weight_bits"),
    confidence="run",
)
def narrow_weights_are_multiplied(job: Job) -> Mask:
    """Weights that lie in 8 bits are multiplied in 8 bits; wider products need wider weights.

    Frozen weights that are unpacked on use are stated by `base_weight_bits`.

    Fails: plan(param_bytes=1, precision=Precision.BF16)
    Passes: plan(param_bytes=1, precision=Precision.FP8)
    """
    plan = job.plan
    wide = (plan.precision < int(Precision.FP8)) & (plan.base_weight_bits == 0)
    return (plan.param_bytes < 2) & wide


@narrow_weights_are_multiplied.message
def _(job: Job) -> str:
    precision = word("precision", job.plan.precision)
    return f"param_bytes = {job.plan.param_bytes} with precision = {precision}"


narrow_weights_are_multiplied.fix(always(param_bytes=(2,), precision=(Precision.FP8,)))
