"""Task assignment (6.1): micro-batches to schedules, and what recompute is applied to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Recompute, RecomputeModule, Schedule
from meshwright.plan.stages import chunks_per_rank
from meshwright.plan.words import word
from meshwright.rules.accepted import silencing
from meshwright.rules.model.dimensions import attentions, routers
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask, Rule

SECTION = "6.1"
LARGE_BUBBLE = 0.10  # of the ideal time of the pipeline
SMALL_BUBBLE = 0.02
LARGEST_TRIED = 1024  # micro-batch size
DUAL = (int(Schedule.DUALPIPE), int(Schedule.DUALPIPE_V))
PIPELINE = ("pp", "vpp", "schedule", "dp", "micro_batch_size")
_INTERLEAVING = (
    "Megatron-LM megatron/core/pipeline_parallel/schedules.py "
    "forward_backward_pipelining_with_interleaving (0.19.2)"
)
_TORCH_SCHEDULES = "PyTorch torch/distributed/pipelining/schedules.py (2.13.0)"
_MEGATRON_CONFIG = "Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)"

# Micro-batches


def is_interleaved(job: Job) -> Any:
    """True where 1F1B interleaves several chunks a rank."""
    return (job.plan.schedule == int(Schedule.ONE_F_ONE_B)) & (job.plan.vpp > 1)


def bubble(job: Job) -> Any:
    """Time in which a rank waits over the time it works, for even stages and free transfers."""
    plan = job.plan
    if np.all(plan.pp <= 1):
        return 0.0 * plan.pp  # no pipeline, none of its formulas
    from meshwright.cost.schedules import bubble_share

    share = bubble_share(
        plan.schedule, pp=plan.pp, vpp=plan.vpp, num_microbatches=num_microbatches(job)
    )
    return share / (1.0 - share)


def _pipeline(job: Job) -> str:
    """Schedule, ranks, chunks and micro-batches, as words."""
    plan = job.plan
    name = word("schedule", plan.schedule)
    micro = int(num_microbatches(job))
    return f"{name}, pp = {plan.pp}, vpp = {plan.vpp}, {micro} micro-batches"


def _smaller_micro_batch(rule_: Rule, job: Job) -> dict[str, tuple[int, ...]]:
    """The largest micro-batch size below the plan's that silences a rule, if there is one."""
    per_replica = job.workload.global_batch_size // max(int(job.plan.dp), 1)
    smaller = range(min(int(job.plan.micro_batch_size) - 1, per_replica, LARGEST_TRIED), 0, -1)
    sizes = [size for size in smaller if per_replica % size == 0]
    fitting = silencing(rule_, job, "micro_batch_size", sizes)[:1]
    return {"micro_batch_size": fitting} if fitting else {}


@rule(
    "CMP101",
    "Interleaved schedule with fewer micro-batches than ranks",
    severity=Severity.ERROR,
    section=SECTION,
    source=_INTERLEAVING,
    reads=PIPELINE,
    confidence="run",
    tolerated_by="torchtitan",
)
def interleaving_has_microbatches(job: Job) -> Mask:
    """Interleaving sends groups of pp micro-batches through one chunk after the other.

    With fewer than pp a rank waits for its own next chunk, and the order deadlocks or is refused.

    Fails: plan(pp=8, vpp=2, micro_batch_size=16)
    Passes: plan(pp=8, vpp=2, micro_batch_size=4)
    """
    return is_interleaved(job) & (job.plan.pp > 1) & (num_microbatches(job) < job.plan.pp)


@interleaving_has_microbatches.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: fewer than pp"


@interleaving_has_microbatches.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _smaller_micro_batch(interleaving_has_microbatches, job) or {"vpp": (1,)}


@rule(
    "CMP103",
    "Interleaved schedule with a ragged last group",
    severity=Severity.WARNING,
    section=SECTION,
    source="PaddlePaddle python/paddle/distributed/auto_tuner/prune.py (3.2.0) prune_by_vpp; "
    + _INTERLEAVING,
    reads=PIPELINE,
    confidence="run",
)
def groups_are_whole(job: Job) -> Mask:
    """Interleaving goes by groups of pp micro-batches; a ragged last one leaves every rank waiting.

    Megatron and Paddle refuse most such numbers, torch others.

    Fails: plan(pp=8, vpp=2, tp=4, micro_batch_size=1, global_batch_size=20, dp=2)
    Passes: plan(pp=8, vpp=2, tp=4, micro_batch_size=1, global_batch_size=32, dp=2)
    """
    micro, pp = num_microbatches(job), job.plan.pp
    return is_interleaved(job) & (micro > pp) & (micro % pp != 0)


@groups_are_whole.message
def _(job: Job) -> str:
    over = int(num_microbatches(job) % job.plan.pp)
    return f"{_pipeline(job)}: {over} are left over from groups of {job.plan.pp}"


groups_are_whole.fix(always(vpp=(1,)))


@rule(
    "CMP104",
    "Fewer micro-batches than pipeline ranks",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_TORCH_SCHEDULES} Schedule1F1B; PaddlePaddle "
    "python/paddle/distributed/auto_tuner/prune.py (3.2.0) prune_by_mbs",
    reads=PIPELINE,
    confidence="run",
)
def pipeline_can_fill(job: Job) -> Mask:
    """At no moment do all ranks work; torch and Paddle refuse 1F1B so, Megatron runs it.

    Fails: plan(pp=8, micro_batch_size=16)
    Passes: plan(pp=8, micro_batch_size=2)
    """
    plan = job.plan
    single = chunks_per_rank(plan) == 1
    return single & (plan.pp > 1) & (num_microbatches(job) < plan.pp)


@pipeline_can_fill.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: some ranks always wait"


@pipeline_can_fill.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _smaller_micro_batch(pipeline_can_fill, job)


@rule(
    "CMP106",
    "DualPipe with too few micro-batches",
    severity=Severity.ERROR,
    section=SECTION,
    source=f"{_TORCH_SCHEDULES} ScheduleDualPipeV; DeepSpeed runtime/pipe/dualpipev.py (0.19.8); "
    "deepseek-ai/DualPipe dualpipe.py",
    reads=PIPELINE,
    confidence="run",
)
def dualpipe_has_microbatches(job: Job) -> Mask:
    """The two directions meet only with 2*pp micro-batches; DualPipe halves them, so even many.

    Fails: plan(pp=8, vpp=2, micro_batch_size=8, schedule=Schedule.DUALPIPE_V)
    Passes: plan(pp=8, vpp=2, micro_batch_size=2, schedule=Schedule.DUALPIPE_V)
    """
    plan, micro = job.plan, num_microbatches(job)
    odd = (plan.schedule == int(Schedule.DUALPIPE)) & (micro % 2 != 0)
    return np.isin(plan.schedule, DUAL) & ((micro < 2 * plan.pp) | odd)


@dualpipe_has_microbatches.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: needs {2 * job.plan.pp} or more, an even number under dualpipe"


@dualpipe_has_microbatches.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _smaller_micro_batch(dualpipe_has_microbatches, job)


@rule(
    "CMP108",
    "Pipeline bubble above 10%",
    severity=Severity.WARNING,
    section=SECTION,
    source="Narayanan et al. 2021 (arXiv 2104.04473) section 2.2; GPipe (arXiv 1811.06965); "
    "closed forms of the schedules, each with its paper",
    reads=PIPELINE,
    confidence="paper",
    said_by=("MOD163",),
)
def bubble_is_small(job: Job) -> Mask:
    """A rank waits while the pipeline fills and drains: (pp-1)/(vpp*M) of its work under 1F1B.

    Four micro-batches a rank keep 1F1B below 25%, ten below 10%; more chunks or a zero-bubble
    schedule do with fewer.

    Fails: plan(pp=8, micro_batch_size=2)
    Passes: plan(pp=4, micro_batch_size=1)
    """
    return (job.plan.pp > 1) & (bubble(job) > LARGE_BUBBLE)


@bubble_is_small.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: {bubble(job):.0%} of the working time is spent waiting"


@bubble_is_small.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _smaller_micro_batch(bubble_is_small, job)


@rule(
    "CMP109",
    "Fewer micro-batches than chunks",
    severity=Severity.WARNING,
    section=SECTION,
    source="torchtitan torchtitan/distributed/pipeline_parallel.py (0.3.0) "
    "_build_pipeline_schedule",
    reads=PIPELINE,
    confidence="read",
)
def chunks_can_fill(job: Job) -> Mask:
    """With several chunks a rank, fewer micro-batches than chunks in all leave ranks waiting.

    Fails: plan(pp=8, vpp=4, micro_batch_size=4)
    Passes: plan(pp=8, vpp=4, micro_batch_size=1)
    """
    plan, chunks = job.plan, chunks_per_rank(job.plan)
    return (plan.pp > 1) & (chunks > 1) & (num_microbatches(job) < plan.pp * chunks)


@chunks_can_fill.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: fewer than the {job.plan.pp * chunks_per_rank(job.plan)} chunks"


@chunks_can_fill.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return _smaller_micro_batch(chunks_can_fill, job)


@rule(
    "CMP110",
    "GPipe holds all micro-batches",
    severity=Severity.WARNING,
    section=SECTION,
    source="Narayanan et al. 2021 (arXiv 2104.04473) section 2.2 (PipeDream-Flush)",
    reads=PIPELINE,
    confidence="paper",
)
def gpipe_holds_all(job: Job) -> Mask:
    """GPipe keeps the activations of every micro-batch, 1F1B of at most pp, in the same time.

    Fails: plan(pp=4, micro_batch_size=1, schedule=Schedule.GPIPE)
    Passes: plan(pp=4, micro_batch_size=1, schedule=Schedule.ONE_F_ONE_B)
    """
    plan = job.plan
    gpipe = plan.schedule == int(Schedule.GPIPE)
    return gpipe & (plan.pp > 1) & (num_microbatches(job) > plan.pp)


@gpipe_holds_all.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: all of them held at once, 1F1B holds {job.plan.pp}"


gpipe_holds_all.fix(always(schedule=(Schedule.ONE_F_ONE_B,)))


@rule(
    "CMP111",
    "Virtual stages where the bubble is already small",
    severity=Severity.INFO,
    section=SECTION,
    source="Megatron-Bridge docs/performance-guide.md (067f987d) pipeline parallelism tips",
    reads=PIPELINE,
    confidence="doc",
)
def interleaving_pays(job: Job) -> Mask:
    """Transfers between stages grow with vpp, and with many micro-batches little bubble is left.

    Fails: plan(pp=4, vpp=4, global_batch_size=1024)
    Passes: plan(pp=4, vpp=2, global_batch_size=512)
    """
    plan = job.plan
    return is_interleaved(job) & (plan.vpp > 2) & (plan.pp > 1) & (bubble(job) < SMALL_BUBBLE)


@interleaving_pays.message
def _(job: Job) -> str:
    return f"{_pipeline(job)}: the bubble is {bubble(job):.1%}"


@interleaving_pays.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"vpp": (int(job.plan.vpp) // 2,)}


# Recompute


@rule(
    "CMP115",
    "More recomputed layers than a rank holds",
    severity=Severity.WARNING,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=("recompute", "recompute_layers", "pp", "vpp", "schedule"),
    confidence="run",
)
def recomputed_layers_exist(job: Job) -> Mask:
    """Full recompute counts the layers of a chunk; more than there are means all (0 says so).

    A plan copied from a shallower pipeline recomputes more than its author meant.

    Fails: plan(pp=8, recompute=Recompute.FULL, recompute_layers=8)
    Passes: plan(pp=8, recompute=Recompute.FULL, recompute_layers=4)
    """
    plan = job.plan
    held = -(-job.model.num_hidden_layers // (plan.pp * chunks_per_rank(plan)))
    return (plan.recompute == int(Recompute.FULL)) & (plan.recompute_layers > held)


@recomputed_layers_exist.message
def _(job: Job) -> str:
    chunks = job.plan.pp * chunks_per_rank(job.plan)
    held = -(-job.model.num_hidden_layers // chunks)
    return f"recompute_layers = {job.plan.recompute_layers} of {held} layers in a chunk"


recomputed_layers_exist.fix(always(recompute_layers=(0,)))


@rule(
    "CMP116",
    "Layer count without full recompute",
    severity=Severity.WARNING,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=("recompute", "recompute_layers"),
    confidence="run",
)
def layer_count_means_full(job: Job) -> Mask:
    """Only full recompute counts layers; selective recompute names modules and covers every layer.

    Fails: plan(recompute=Recompute.SELECTIVE, recompute_layers=4)
    Passes: plan(recompute=Recompute.FULL, recompute_layers=4)
    """
    plan = job.plan
    return (plan.recompute != int(Recompute.FULL)) & (plan.recompute_layers > 0)


@layer_count_means_full.message
def _(job: Job) -> str:
    kind = word("recompute", job.plan.recompute)
    return f"recompute_layers = {job.plan.recompute_layers} with recompute = {kind}"


layer_count_means_full.fix(always(recompute_layers=(0,), recompute=(Recompute.FULL,)))


def _absent_modules(job: Job) -> int:
    """Recompute modules that the model does not have, as flags."""
    modules = RecomputeModule
    absent = 0 if any(a.is_latent for a in attentions(job.model)) else modules.MLA_UP_PROJECTION
    if not job.model.is_moe:
        absent |= modules.MOE | modules.MOE_ACTIVATION | modules.SHARED_EXPERTS
    elif not any(e.shared_intermediate_size for e in routers(job.model)):
        absent |= modules.SHARED_EXPERTS
    return int(absent)


@rule(
    "CMP118",
    "Recompute module that the model does not have",
    severity=Severity.ERROR,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=("recompute", "recompute_modules"),
    confidence="run",
)
def recomputed_modules_exist(job: Job) -> Mask:
    """Latent projections need latent attention, and experts need experts, to be recomputed.

    Fails: plan(model="llama-3-8b", recompute=Recompute.SELECTIVE, recompute_modules=64)
    Fails: plan(model="llama-3-8b", recompute=Recompute.SELECTIVE, recompute_modules=16)
    Passes: plan(model="mixtral-8x7b", recompute=Recompute.SELECTIVE, recompute_modules=16)
    """
    plan = job.plan
    selective = plan.recompute == int(Recompute.SELECTIVE)
    return selective & (np.bitwise_and(plan.recompute_modules, _absent_modules(job)) != 0)


@recomputed_modules_exist.message
def _(job: Job) -> str:
    absent = int(job.plan.recompute_modules) & _absent_modules(job)
    modules = ", ".join(word("recompute_modules", absent))
    return f"recompute_modules = {modules}, which {job.model.name or 'the model'} does not have"


@recomputed_modules_exist.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    left = RecomputeModule(int(job.plan.recompute_modules) & ~_absent_modules(job))
    return {"recompute_modules": (left,)} if left else {"recompute": (Recompute.NONE,)}


@rule(
    "CMP119",
    "Distributed checkpoints of activations without their conditions",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2)",
    reads=("distribute_saved", "tp", "recompute", "sequence_parallel"),
    confidence="run",
)
def saved_inputs_can_be_distributed(job: Job) -> Mask:
    """What full recompute saves of a layer is equal on all tp ranks and can be split over them.

    Without full recompute or tp there is nothing to split; with sequence parallelism it is split.

    Fails: plan(tp=4, distribute_saved=True, recompute=Recompute.FULL)
    Fails: plan(tp=4, distribute_saved=True, sequence_parallel=False)
    Passes: plan(tp=4, distribute_saved=True, recompute=Recompute.FULL, sequence_parallel=False)
    """
    plan = job.plan
    unfit = (plan.tp == 1) | (plan.recompute != int(Recompute.FULL))
    return plan.distribute_saved & (unfit | plan.sequence_parallel)


@saved_inputs_can_be_distributed.message
def _(job: Job) -> str:
    plan = job.plan
    kind = word("recompute", plan.recompute)
    return (
        f"distribute_saved with tp = {plan.tp}, recompute = {kind}, "
        f"sequence_parallel = {bool(plan.sequence_parallel)}"
    )


saved_inputs_can_be_distributed.fix(always(distribute_saved=(False,)))


@rule(
    "CMP122",
    "Attention scores recomputed twice",
    severity=Severity.INFO,
    section=SECTION,
    source=_MEGATRON_CONFIG,
    reads=("recompute", "recompute_modules", "flash_attention"),
    confidence="read",
)
def fused_attention_recomputes(job: Job) -> Mask:
    """Fused attention already recomputes its scores; naming the module again only adds time.

    It is the default module of selective recompute.

    Fails: plan(recompute=Recompute.SELECTIVE, recompute_modules=1, flash_attention=True)
    Passes: plan(recompute=Recompute.SELECTIVE, recompute_modules=2, flash_attention=True)
    """
    plan = job.plan
    named = np.bitwise_and(plan.recompute_modules, int(RecomputeModule.CORE_ATTENTION)) != 0
    return (plan.recompute == int(Recompute.SELECTIVE)) & named & plan.flash_attention


fused_attention_recomputes.message(
    lambda _: "core-attention recomputed with flash_attention = True"
)


@fused_attention_recomputes.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    left = RecomputeModule(int(job.plan.recompute_modules) & ~RecomputeModule.CORE_ATTENTION)
    return {"recompute_modules": (left,)} if left else {"recompute": (Recompute.NONE,)}
