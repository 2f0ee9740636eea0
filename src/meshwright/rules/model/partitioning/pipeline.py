"""Structure partitioning (5.1): cutting the layers over pipeline stages, evenly or as stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import Schedule
from meshwright.plan.stages import chunks_per_rank, is_v_shaped, num_chunks
from meshwright.plan.words import word
from meshwright.rules.accepted import accepted_near, silencing
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
VISIBLE_BUBBLE = 0.1  # share of the ideal step time
SINGLE_CHUNK = (int(Schedule.GPIPE), int(Schedule.ZB_H1), int(Schedule.ZB_H2))
_SPLIT = (
    "pp",
    "layout",
    "first_stage_layers",
    "last_stage_layers",
    "embedding_in_split",
    "loss_in_split",
)


def slots(job: Job) -> Any:
    """Layers, and embedding and head where the plan counts them as one each."""
    plan = job.plan
    ends = np.asarray(plan.embedding_in_split, dtype=np.int64) + plan.loss_in_split
    return job.model.num_hidden_layers + ends


def counts_ends(job: Job) -> Any:
    """True where embedding or head count as a layer of the split."""
    return np.logical_or(job.plan.embedding_in_split, job.plan.loss_in_split)


def splits_evenly(job: Job) -> Any:
    """True where several stages share the layers evenly because nothing else is stated."""
    plan = job.plan
    stated = (plan.first_stage_layers > 0) | (plan.last_stage_layers > 0)
    return (plan.pp > 1) & np.logical_not(stated) & (plan.layout is None)


def _legal_pp(job: Job) -> tuple[int, ...]:
    """The nearest pp that divide the slots and the GPUs."""
    total = int(slots(job))

    def accepts(pp: int) -> bool:
        return total % pp == 0 and job.cluster.num_gpus % pp == 0

    return accepted_near(int(job.plan.pp), accepts, limit=total)


@rule(
    "MOD113",
    "Layers not divisible by pp",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2); PaddlePaddle "
    "python/paddle/distributed/auto_tuner/prune.py (3.2.0) prune_by_pp",
    reads=_SPLIT,
    confidence="run",
)
def layers_divide_by_pp(job: Job) -> Mask:
    """Some stages get a layer more than others, and the pipeline runs at their pace.

    Some stacks split unevenly by themselves (torchtitan, DeepSpeed), others refuse unless the
    split is stated (Megatron, Paddle).

    Fails: plan(model="llama-3-8b", pp=6, nodes=6)
    Passes: plan(model="llama-3-8b", pp=4)
    Passes: plan(model="llama-3-8b", pp=6, nodes=6, first_stage_layers=4, last_stage_layers=4)
    """
    even = splits_evenly(job) & np.logical_not(counts_ends(job))
    return even & (job.model.num_hidden_layers % job.plan.pp != 0)


@layers_divide_by_pp.message
def _(job: Job) -> str:
    return f"{job.model.num_hidden_layers} layers do not divide by pp = {job.plan.pp}"


@layers_divide_by_pp.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"pp": _legal_pp(job)}


@rule(
    "MOD114",
    "Layers of a rank not divisible by its chunks",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2); megatron/core/"
    "transformer/transformer_block.py get_num_layers_to_build (0.19.2)",
    reads=(*_SPLIT, "vpp", "schedule"),
    confidence="run",
)
def layers_divide_by_chunks(job: Job) -> Mask:
    """An interleaved schedule runs at the pace of the longest chunk.

    Stacks that do not split unevenly by themselves refuse.

    Fails: plan(model="llama-3-8b", pp=4, vpp=3)
    Passes: plan(model="llama-3-8b", pp=4, vpp=4)
    """
    plan = job.plan
    even = splits_evenly(job) & np.logical_not(counts_ends(job)) & (plan.vpp > 1)
    return even & (job.model.num_hidden_layers // plan.pp % chunks_per_rank(plan) != 0)


@layers_divide_by_chunks.message
def _(job: Job) -> str:
    layers, chunks = job.model.num_hidden_layers // job.plan.pp, chunks_per_rank(job.plan)
    return f"{layers} layers of a pipeline rank do not divide by its {chunks} chunks"


@layers_divide_by_chunks.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    layers = job.model.num_hidden_layers // int(job.plan.pp)
    near = accepted_near(int(job.plan.vpp), lambda v: layers % v == 0, limit=layers)
    return {"vpp": silencing(layers_divide_by_chunks, job, "vpp", near)}


@rule(
    "MOD115",
    "Virtual stages without a pipeline",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)",
    reads=("pp", "vpp"),
    confidence="run",
)
def virtual_stages_need_pipeline(job: Job) -> Mask:
    """Virtual stages interleave the chunks of several ranks; one rank has nothing to interleave.

    Fails: plan(pp=1, vpp=2)
    Passes: plan(pp=4, vpp=2)
    Passes: plan(pp=1, vpp=1)
    """
    return (job.plan.vpp > 1) & (job.plan.pp == 1)


@virtual_stages_need_pipeline.message
def _(job: Job) -> str:
    return f"vpp = {job.plan.vpp} with pp = 1"


virtual_stages_need_pipeline.fix(always(vpp=(1,)))


@rule(
    "MOD124",
    "Layers with embedding and head slots not divisible",
    severity=Severity.WARNING,
    section=SECTION,
    source="Megatron-LM megatron/core/transformer/transformer_config.py (0.19.2)",
    reads=(*_SPLIT, "vpp", "schedule"),
    confidence="run",
)
def slots_divide_by_stages(job: Job) -> Mask:
    """Where embedding or head count as a layer, their sum with the layers should divide.

    The longest stage sets the pace; Megatron refuses, torchtitan gives the rest to the first
    stages. 126 layers and two slots are 128, which is why Llama 3 405B has 126.

    Fails: plan(model="llama-3-8b", pp=4, embedding_in_split=True, loss_in_split=True)
    Passes: plan(num_hidden_layers=30, pp=4, embedding_in_split=True, loss_in_split=True)
    """
    plan, total = job.plan, slots(job)
    chunks = (plan.vpp > 1) & (total // plan.pp % chunks_per_rank(plan) != 0)
    return splits_evenly(job) & counts_ends(job) & ((total % plan.pp != 0) | chunks)


@slots_divide_by_stages.message
def _(job: Job) -> str:
    return (
        f"{job.model.num_hidden_layers} layers and {slots(job) - job.model.num_hidden_layers} "
        f"slots do not divide by pp = {job.plan.pp}, vpp = {job.plan.vpp}"
    )


@slots_divide_by_stages.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"pp": silencing(slots_divide_by_stages, job, "pp", _legal_pp(job))}


@rule(
    "MOD130",
    "Schedule and chunks per rank disagree",
    severity=Severity.ERROR,
    section=SECTION,
    source="torchtitan torchtitan/distributed/pipeline_parallel.py (0.3.0) "
    "_get_pipeline_metadata; DeepSeek-V3 (arXiv 2412.19437) section 3.2.1",
    reads=("schedule", "vpp", "pp"),
    confidence="run",
)
def schedule_fits_chunks(job: Job) -> Mask:
    """GPipe, ZB-H1 and ZB-H2 order one chunk a rank; DualPipe pairs rank i with rank pp - 1 - i.

    Interleaving is 1F1B with vpp > 1. DualPipe's pairs need an even number of ranks.

    Fails: plan(pp=4, vpp=2, schedule=Schedule.GPIPE)
    Fails: plan(pp=3, schedule=Schedule.DUALPIPE, nodes=6)
    Passes: plan(pp=4, vpp=1, schedule=Schedule.GPIPE)
    Passes: plan(pp=4, vpp=2, schedule=Schedule.ONE_F_ONE_B)
    """
    plan = job.plan
    single = np.isin(plan.schedule, SINGLE_CHUNK)
    dual = plan.schedule == int(Schedule.DUALPIPE)
    return (single & (plan.vpp > 1)) | (dual & ((plan.vpp > 2) | (plan.pp % 2 != 0)))


@schedule_fits_chunks.message
def _(job: Job) -> str:
    plan = job.plan
    name = word("schedule", plan.schedule)
    return f"{name} does not run with vpp = {plan.vpp} on pp = {plan.pp}"


@schedule_fits_chunks.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    plan = job.plan
    fixes: dict[str, tuple[int, ...]] = {}
    if plan.schedule == int(Schedule.DUALPIPE) and plan.pp % 2:
        even = accepted_near(int(plan.pp), lambda pp: pp % 2 == 0, limit=int(plan.pp) + 1)
        fixes["pp"] = even
    return fixes | ({"vpp": (1,)} if plan.vpp > 1 else {})


@rule(
    "MOD131",
    "More chunks than layers",
    severity=Severity.ERROR,
    section=SECTION,
    source="torchtitan torchtitan/distributed/pipeline_parallel.py (0.3.0) "
    "_generate_llm_fqn_per_model_part",
    reads=("pp", "vpp", "schedule", "layout", "embedding_in_split", "loss_in_split"),
    confidence="run",
)
def every_chunk_has_a_layer(job: Job) -> Mask:
    """A chunk of an even split without a layer has nothing to compute.

    Embedding and head fill a chunk where they count as one layer each. V-shaped schedules and
    DualPipe-V cut the model into 2*pp chunks.

    Fails: plan(model="llama-3-8b", pp=16, vpp=4)
    Fails: plan(num_hidden_layers=12, pp=8, vpp=2, schedule=Schedule.DUALPIPE_V)
    Passes: plan(model="llama-3-8b", pp=16, vpp=2)
    """
    return (job.plan.layout is None) & (num_chunks(job.plan) > slots(job))


@every_chunk_has_a_layer.message
def _(job: Job) -> str:
    plan = job.plan
    chunks = num_chunks(plan)
    return f"{chunks} chunks (pp = {plan.pp}, vpp = {plan.vpp}) for {slots(job)} layers"


@every_chunk_has_a_layer.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    most = int(slots(job)) // max(int(job.plan.pp), 1)
    if most >= 1 and not is_v_shaped(job.plan.schedule):
        return {"vpp": accepted_near(most + 1, lambda v: most % v == 0, limit=most)}
    return {"pp": _legal_pp(job)[:1]}


@rule(
    "MOD132",
    "V-shaped schedule without two chunks a rank",
    severity=Severity.ERROR,
    section=SECTION,
    source="PyTorch torch/distributed/pipelining/schedules.py (2.13.0) ScheduleZBVZeroBubble, "
    "ScheduleDualPipeV; Qi et al. 2024 (arXiv 2405.15362)",
    reads=("schedule", "vpp"),
    confidence="run",
)
def v_schedule_has_two_chunks(job: Job) -> Mask:
    """A V goes down the ranks and back up, so that every rank holds two chunks.

    Fails: plan(pp=4, vpp=1, schedule=Schedule.ZB_V)
    Passes: plan(pp=4, vpp=2, schedule=Schedule.ZB_V)
    """
    return is_v_shaped(job.plan.schedule) & (job.plan.vpp != 2)


@v_schedule_has_two_chunks.message
def _(job: Job) -> str:
    return f"{word('schedule', job.plan.schedule)} with vpp = {job.plan.vpp}"


v_schedule_has_two_chunks.fix(always(vpp=(2,)))


@rule(
    "MOD134",
    "Pipeline stages do not divide the GPUs",
    severity=Severity.ERROR,
    section=SECTION,
    source="DeepSpeed deepspeed/runtime/pipe/module.py PipelineModule (0.19.8)",
    reads=("pp",),
    confidence="run",
)
def stages_divide_gpus(job: Job) -> Mask:
    """Every stage runs on as many GPUs as the others, so pp must divide the cluster.

    Fails: plan(pp=5)
    Passes: plan(pp=4)
    """
    return job.cluster.num_gpus % np.asarray(job.plan.pp) != 0


@stages_divide_gpus.message
def _(job: Job) -> str:
    return f"{job.cluster.num_gpus} GPUs do not divide by pp = {job.plan.pp}"


@stages_divide_gpus.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    gpus = job.cluster.num_gpus
    return {"pp": accepted_near(int(job.plan.pp), lambda pp: gpus % pp == 0, limit=gpus)}


@rule(
    "MOD163",
    "Pipeline with a visible bubble and no interleaving",
    severity=Severity.WARNING,
    section=SECTION,
    source="Narayanan et al. 2021 (arXiv 2104.04473) section 2.2; Megatron-LM megatron/core/"
    "transformer/moe/README.md best practices (d98e8a64) guideline 3",
    reads=("pp", "vpp", "schedule", "dp", "micro_batch_size"),
    confidence="doc",
)
def interleaving_would_help(job: Job) -> Mask:
    """Interleaving divides the bubble by vpp, for more transfers between stages.

    Fails: plan(pp=8, tp=2, micro_batch_size=8, global_batch_size=256)
    Passes: plan(pp=8, tp=2, micro_batch_size=1, global_batch_size=512)
    """
    plan = job.plan
    plain = (plan.schedule == int(Schedule.ONE_F_ONE_B)) & (plan.vpp == 1) & (plan.pp > 1)
    visible = (plan.pp - 1) / num_microbatches(job) > VISIBLE_BUBBLE
    possible = num_microbatches(job) % plan.pp == 0  # rounds of pp micro-batches a chunk
    return plain & visible & possible & (job.model.num_hidden_layers // plan.pp >= 2)


@interleaving_would_help.message
def _(job: Job) -> str:
    pp, micro_batches = int(job.plan.pp), int(num_microbatches(job))
    bubble = (pp - 1) / micro_batches
    return (
        f"1f1b with pp = {pp} and vpp = 1 over {micro_batches} micro-batches idles {bubble:.0%} of "
        f"the ideal time"
    )


@interleaving_would_help.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    layers = job.model.num_hidden_layers // int(job.plan.pp)
    return {"vpp": accepted_near(1, lambda v: layers % v == 0, limit=layers)}
