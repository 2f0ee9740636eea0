"""A job in torchtitan's words: TOML of 0.2, or the command line of 0.3."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meshwright.base.deferred import Deferred
from meshwright.frameworks.field import release
from meshwright.frameworks.framework import Expressed, framework
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.frameworks.torchtitan import models
from meshwright.frameworks.torchtitan.meaning import layers_by_stage
from meshwright.frameworks.torchtitan.recipe import written_recipe
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Precision, Recompute, Schedule
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import word

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

WRITTEN = "0.2.2"  # what a job is written for where no version is asked for
_SCHEDULES = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
_CONVERTERS = {
    int(Precision.FP8): "quantize.linear.float8",
    int(Precision.MXFP8): "quantize.linear.mx",
}
_CONVERTER_CLASSES = {
    int(Precision.FP8): "Float8LinearConverter",
    int(Precision.MXFP8): "MXFP8LinearConverter",
    int(Precision.NVFP4): "NVFP4LinearConverter",
}
_REASONS = {
    "zero_stage": "parameters are always sharded (or, with replicas alone, nothing is)",
    "master_weights": "parameters are held in fp32 and cast when gathered; there is no copy",
    "param_bytes": "parameters are held in fp32, or everything in bf16 (training.dtype)",
    "grad_bytes": "gradients have the width of the parameters",
    "reduce_bytes": "gradients are reduced in fp32 only",
    "recompute_layers": "whole layers are recomputed in all layers, or in every n-th",
    "recompute_modules": "selective recompute keeps attention and every second product",
    "sequence_parallel": "up to 0.2 it is part of tensor parallelism",
    "overlap_tp": "asynchronous tensor parallelism is all or nothing",
    "cuda_graph": "CUDA graphs came with 0.3",
    "optimizer": "the file names Adam and AdamW only",
    "first_stage_layers": "written as modules of every stage",
    "last_stage_layers": "written as modules of every stage",
}
_SAME = frozenset(
    {"first_stage_layers", "last_stage_layers", "layout", "embedding_in_split", "loss_in_split"}
)


def express(job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what torchtitan cannot run."""
    version = version or WRITTEN
    plan = job.plan.row(0)
    refused = _refused(job, plan, version)
    modern = release(version) >= (0, 3)
    settings = {
        **_model(job, modern=modern),
        **_training(job, plan, modern=modern),
        **_mesh(plan, modern=modern),
        **_pipeline(job, plan, modern=modern),
        **_recompute(job, plan, modern=modern),
        **_optimizer(job),
    }
    own = framework("torchtitan")
    silent = {*refused, *(() if "layout" in refused else _SAME)}
    gone = lost(unsaid(own, version, settings, job, but_not=silent), _REASONS, "torchtitan")
    launch = launch_of(job)
    return Expressed(
        settings=settings,
        text=written_recipe(settings, launch) if modern else "",
        syntax="python" if modern else "",
        file_name="config_registry.py" if modern else "",
        launch=launch,
        lost=Deferred(lambda: {**gone, **_unregistered(job)}),
        refused=refused,
    )


def _unregistered(job: Job) -> dict[str, str]:
    """The model, where torchtitan has none of its name."""
    if models.registered(job.model.name) is not None:
        return {}
    return {"model_name": f"no registered model is {job.model.name}; add one to the registry"}


def _refused(job: Job, plan: Plan, version: str) -> dict[str, str]:
    """Why torchtitan cannot run the plan at all."""
    found: dict[str, str] = {}
    if plan.pp > 1 and job.model.tie_word_embeddings:
        found["tie_word_embeddings"] = "tied embeddings cannot be on two pipeline stages"
    if plan.pp > 1 and _schedule(plan) is None:
        name = word("schedule", plan.schedule)
        found["schedule"] = f"PyTorch has no schedule like {name}"
    if plan.cp > 1 and plan.context_parallel in (
        int(ContextParallel.ULYSSES),
        int(ContextParallel.HIERARCHICAL),
    ):
        found["context_parallel"] = "context parallelism gathers or passes on keys and values only"
    allowed = (1, plan.tp) if release(version) < (0, 3) else (1,)
    if plan.ep > 1 and plan.etp not in allowed:
        choices = " or ".join(str(x) for x in sorted(set(allowed)))
        found["etp"] = f"experts have tensor parallelism {choices}"
    if plan.lora_rank:
        found["lora_rank"] = "adapters came with 0.3, where a recipe's converters add them"
    if plan.precision == int(Precision.FP16):
        found["precision"] = "mixed precision is bf16 only"
    if plan.precision == int(Precision.NVFP4) and release(version) < (0, 3):
        found["precision"] = "NVFP4 came with 0.3"
    if plan.vocab_over_pipeline:
        found["vocab_over_pipeline"] = "embedding and head lie on the first and last stage"
    return found


def _schedule(plan: Plan) -> str | None:
    if plan.schedule == int(Schedule.ONE_F_ONE_B) and plan.vpp > 1:
        return _SCHEDULES["interleaved"]
    return _SCHEDULES.get(word("schedule", plan.schedule))


def _model(job: Job, *, modern: bool) -> dict[str, Any]:
    found = models.registered(job.model.name)
    if found is None:
        return {} if modern else {"model.name": job.model.name, "model.flavor": "registered here"}
    family, size = found
    if not modern:
        return {"model.name": family, "model.flavor": size}
    name = f"{family}_{size}".lower().replace("-", "_").replace(".", "_")
    settings: dict[str, Any] = {
        "config": name,
        "model_spec.name": family,
        "model_spec.flavor": size,
    }
    if (converter := _CONVERTER_CLASSES.get(int(job.plan.row(0).precision))) is not None:
        settings["model_spec.converters"] = [converter]
    return settings


def _training(job: Job, plan: Plan, *, modern: bool) -> dict[str, Any]:
    """Batch, length, dtypes. A pipeline's micro-batches all lie in the local batch."""
    work = job.workload
    local = int(plan.micro_batch_size)
    if plan.pp > 1:
        local *= max(int(num_microbatches(job)), 1)
    settings: dict[str, Any] = {
        "training.local_batch_size": local,
        "training.global_batch_size": work.global_batch_size,
        "training.seq_len": work.seq_len,
    }
    if work.train_tokens:
        per_step = work.global_batch_size * work.seq_len
        settings["training.steps"] = max(round(work.train_tokens / per_step), 1)
    pure = plan.param_bytes == 2 and plan.grad_bytes == 2 and not plan.master_weights
    settings["training.dtype"] = "bfloat16" if pure else "float32"
    narrow = plan.precision != int(Precision.FP32)
    settings["training.mixed_precision_param"] = "bfloat16" if narrow else "float32"
    if plan.offload_params and plan.offload_optimizer == 1:
        settings["training.enable_cpu_offload"] = True
    if modern and not plan.cuda_graph:
        settings["training.disable_cuda_graphs"] = True
    if not modern and int(plan.precision) in _CONVERTERS:
        settings["model.converters"] = [_CONVERTERS[int(plan.precision)]]
    return settings


def _mesh(plan: Plan, *, modern: bool) -> dict[str, Any]:
    """Degrees; `dp_replicate` divides the data-parallel ranks."""
    alone = plan.cp == plan.tp == plan.pp == 1  # replicas without shards take no other axis
    replicate = int(plan.dp) if plan.zero_stage == 0 and alone else int(plan.dp_replicate)
    replicate = replicate if plan.dp % max(replicate, 1) == 0 else 1
    p = "parallelism."
    settings: dict[str, Any] = {
        p + "data_parallel_replicate_degree": replicate,
        p + "data_parallel_shard_degree": int(plan.dp) // max(replicate, 1),
        p + "tensor_parallel_degree": int(plan.tp),
        p + "pipeline_parallel_degree": int(plan.pp),
        p + "context_parallel_degree": int(plan.cp),
        p + "expert_parallel_degree": int(plan.ep),
    }
    default = plan.pp == 1
    if plan.zero_stage >= 1:  # what is not sharded comes closest to what stays gathered
        reshard = bool(plan.reshard_after_forward) and plan.zero_stage == 3
        if reshard != default:
            settings[p + "fsdp_reshard_after_forward"] = "always" if reshard else "never"
    if not modern:
        if plan.ep > 1 and plan.etp != 1:
            settings[p + "expert_tensor_parallel_degree"] = int(plan.etp)
        if plan.cp > 1 and plan.context_parallel == int(ContextParallel.RING):
            settings[p + "context_parallel_rotate_method"] = "alltoall"
        if not plan.loss_parallel:
            settings[p + "disable_loss_parallel"] = True
    else:
        if not plan.sequence_parallel and plan.tp > 1:
            settings[p + "enable_sequence_parallel"] = False
        if plan.loss_chunks > 1:
            settings["loss.num_chunks"] = int(plan.loss_chunks)
    return settings | _compiled(plan, modern=modern)


def _compiled(plan: Plan, *, modern: bool) -> dict[str, Any]:
    """Compilation, and asynchronous tensor parallelism, which needs it."""
    settings: dict[str, Any] = {}
    if plan.compile:
        settings["compile.enable"] = True
        if plan.overlap_tp and plan.tp > 1:
            section = "compile" if modern else "parallelism"
            settings[section + ".enable_async_tensor_parallel"] = True
    return settings


def _pipeline(job: Job, plan: Plan, *, modern: bool) -> dict[str, Any]:
    """Schedule, and stages where they are not those that torchtitan would make."""
    if plan.pp == 1:
        return {}
    p = "parallelism.pipeline_parallel_"
    schedule = _schedule(plan)
    settings: dict[str, Any] = {p + "microbatch_size": int(plan.micro_batch_size)}
    if schedule is None:
        return settings
    settings[p + "schedule"] = schedule
    chunks = list(chunk_layers(job.model, plan))
    each = len(chunks) // int(plan.pp)
    ends = (int(plan.embedding_in_split), int(plan.loss_in_split))
    layers = job.model.num_hidden_layers
    if chunks == layers_by_stage(layers, len(chunks), *ends):
        if ends != (1, 1):
            settings[p + "first_stage_less_layers"] = ends[0]
            settings[p + "last_stage_less_layers"] = ends[1]
        if each == (1 if schedule in ("1F1B", "GPipe") else 2):
            return settings
        per_stage = math.ceil((layers + sum(ends)) / len(chunks))
        if math.ceil((layers + sum(ends)) / per_stage) == len(chunks):
            return settings | {p + "layers_per_stage": per_stage}
    settings["parallelism.module_fqns_per_model_part"] = _modules(
        chunks, head="lm_head" if modern else "output"
    )
    return settings


def _modules(chunks: list[int], *, head: str) -> list[list[str]]:
    """Names of the modules of every chunk."""
    parts: list[list[str]] = []
    start = 0
    for count in chunks:
        parts.append([f"layers.{i}" for i in range(start, start + count)])
        start += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", head]
    return parts


def _recompute(job: Job, plan: Plan, *, modern: bool) -> dict[str, Any]:
    mode, option = _policy(job, plan)
    if modern:
        classes = {"full": "FullAC", "selective": "SelectiveAC"}
        return {"activation_checkpoint": classes.get(mode)}
    settings = {"activation_checkpoint.mode": mode}
    if mode == "selective":
        settings["activation_checkpoint.selective_ac_option"] = option
    return settings


def _policy(job: Job, plan: Plan) -> tuple[str, str]:
    """Mode, and option of selective recompute."""
    if plan.recompute == int(Recompute.NONE):
        return "none", ""
    if plan.recompute == int(Recompute.SELECTIVE):
        return "selective", "op"
    layers = -(-job.model.num_hidden_layers // int(plan.pp))
    chosen = int(plan.recompute_layers)
    if chosen and not plan.recompute_uniform and chosen < layers and layers // chosen > 1:
        return "selective", str(layers // chosen)
    return "full", ""


def _optimizer(job: Job) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    recipe, loading = job.workload.recipe, job.workload.loading
    if recipe.learning_rate is not None:
        settings["optimizer.lr"] = recipe.learning_rate
    if loading.checkpoint_interval_steps:
        settings["checkpoint.enable"] = True
        settings["checkpoint.interval"] = loading.checkpoint_interval_steps
        if loading.checkpoint_async:
            settings["checkpoint.async_mode"] = "async"
    return settings
