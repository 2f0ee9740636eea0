"""A job as the arguments of ColossalAI's hybrid plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.deferred import Deferred
from meshwright.frameworks.framework import Expressed, framework
from meshwright.frameworks.inverse import launch_of, lost, python_text, unsaid
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Precision, Recompute, Schedule
from meshwright.plan.words import word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_PADDED = 64  # make_vocab_size_divisible_by, where nothing is said
_STYLES = {
    int(Schedule.ONE_F_ONE_B): "1f1b",
    int(Schedule.ZB_V): "zbv",
}
_PRECISIONS = {
    int(Precision.BF16): "bf16",
    int(Precision.FP16): "fp16",
    int(Precision.FP32): "fp32",
    int(Precision.FP8): "bf16",
}
_REASONS = {
    "recompute_modules": "checkpointing covers whole layers",
    "recompute_layers": "written as all layers; see GradientCheckpointConfig",
    "grad_bytes": "gradients have the width of the weights",
    "dp_replicate": "state is shared by all data-parallel ranks",
}


def express(job: Job, version: str) -> Expressed:
    """The arguments that state a job, what they do not say, and what ColossalAI cannot run."""
    plan = job.plan.row(0)
    refused = _refused(plan)
    settings = {**_mesh(plan), **_pipeline(job, plan), **_precision(plan), **_vocabulary(job, plan)}
    own = framework("colossalai")
    gone = unsaid(own, version, settings, job, but_not=refused)
    reasons, launch = lost(gone, _REASONS, "ColossalAI"), launch_of(job)
    return Expressed(
        settings=settings,
        text=_text(settings, launch),
        launch=launch,
        lost=Deferred(lambda: {**reasons, **_accumulated(job, plan)}),
        refused=refused,
    )


def _text(settings: Mapping[str, Any], launch: Mapping[str, Any]) -> str:
    """The plugin's call; the batch of a rank is the loader's business."""
    plugin = "MoeHybridParallelPlugin" if "ep_size" in settings else "HybridParallelPlugin"
    own = {name: value for name, value in settings.items() if name != "batch_size"}
    lines = [f"    {name}={_value(name, value)}," for name, value in own.items()]
    return "\n".join(
        [
            f"# {launch['num_nodes']} nodes x {launch['gpus_per_node']} GPUs",
            *(["import torch"] if "communication_dtype" in own else []),
            f"from colossalai.booster.plugin import {plugin}",
            "",
            f"batch_size = {settings['batch_size']}  # sequences of a data-parallel rank",
            f"plugin = {plugin}(",
            *lines,
            ")",
            "",
        ]
    )


def _value(name: str, value: Any) -> str:
    return str(value) if name == "communication_dtype" else python_text(value)


def _accumulated(job: Job, plan: Plan) -> dict[str, str]:
    """The batch, where it takes several passes without a pipeline."""
    if plan.pp > 1 or num_microbatches(job) <= 1:
        return {}
    return {"global_batch_size": "accumulation is the training loop's, not the plugin's"}


def _refused(plan: Plan) -> dict[str, str]:
    """Why ColossalAI cannot run the plan at all."""
    found: dict[str, str] = {}
    if plan.zero_stage == 3 and plan.dp * plan.cp > 1:
        found["zero_stage"] = (
            "the hybrid plugin shards optimizer states and gradients only; Gemini, which shards "
            "weights too, is not written"
        )
    if plan.pp > 1 and plan.zero_stage == 2:
        found["zero_stage"] = "with a pipeline only optimizer states are sharded"
    if plan.pp > 1 and int(plan.schedule) not in _STYLES:
        name = word("schedule", plan.schedule)
        found["schedule"] = f"pipelines run 1f1b, interleaved or zbv, not {name}"
    if int(plan.precision) not in _PRECISIONS:
        found["precision"] = "arithmetic is fp16, bf16, fp32 or FP8"
    allowed = (int(ContextParallel.ULYSSES), int(ContextParallel.RING))
    if plan.cp > 1 and plan.context_parallel not in allowed:
        found["context_parallel"] = "sequences are shared over heads or in a ring"
    if plan.cp > 1 and plan.sequence_parallel and plan.tp > 1:
        found["sequence_parallel"] = "one mode of sequence parallelism at a time"
    if plan.lora_rank and plan.pp > 1:
        found["lora_rank"] = "the booster's adapters do not run in a pipeline"
    if plan.ep > 1 and plan.dp % plan.ep:
        found["ep"] = f"experts are spread inside the {int(plan.dp)} data-parallel ranks"
    return found


def _mesh(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tp_size": int(plan.tp),
        "pp_size": int(plan.pp),
        "zero_stage": min(int(plan.zero_stage), 2),
    }
    if plan.ep > 1:
        settings["ep_size"] = int(plan.ep)
    if plan.cp > 1:
        settings["enable_sequence_parallelism"] = True
        ring = plan.context_parallel == int(ContextParallel.RING)
        settings["sequence_parallelism_mode"] = "ring_attn" if ring else "all_to_all"
        settings["sp_size"] = int(plan.cp)
    elif plan.sequence_parallel and plan.tp > 1:
        settings["enable_sequence_parallelism"] = True
        settings["sequence_parallelism_mode"] = "split_gather"
    return settings


def _vocabulary(job: Job, plan: Plan) -> dict[str, Any]:
    """The unit of padding, where the usual one would add rows that the model does not have."""
    tp, size = int(plan.tp), int(job.model.vocab_size)
    if tp == 1 or size % (_PADDED * tp) == 0 or size % tp:
        return {}
    unit = next(u for u in (32, 16, 8, 4, 2, 1) if size % (u * tp) == 0)
    return {"make_vocab_size_divisible_by": unit}


def _pipeline(job: Job, plan: Plan) -> dict[str, Any]:
    if plan.pp == 1:
        return {}
    style = _STYLES.get(int(plan.schedule), "1f1b")
    if style == "1f1b" and plan.vpp > 1:
        style = "interleaved"
    settings: dict[str, Any] = {
        "pp_style": style,
        "num_model_chunks": int(plan.vpp),
        "microbatch_size": int(plan.micro_batch_size),
        "batch_size": int(plan.micro_batch_size) * max(int(num_microbatches(job)), 1),
        "overlap_p2p": bool(plan.overlap_pp),
    }
    if plan.layout is not None:
        settings["num_layers_per_stage"] = [int(n) for n in plan.layout]
    return settings


def _precision(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "precision": _PRECISIONS.get(int(plan.precision), "bf16"),
        "enable_flash_attention": bool(plan.flash_attention),
        "parallel_output": bool(plan.loss_parallel),
        "overlap_communication": bool(plan.overlap_grad_reduce),
        "overlap_allgather": bool(plan.overlap_param_gather),
    }
    if plan.precision == int(Precision.FP8):
        settings["use_fp8"] = True
    if plan.offload_optimizer == 1:
        settings["cpu_offload"] = True
    if plan.pp == 1:
        settings["batch_size"] = int(plan.micro_batch_size)
    if plan.recompute == int(Recompute.FULL):
        settings["gradient_checkpoint_config"] = True
    if plan.reduce_bytes == 4 and plan.param_bytes == 2:
        settings["communication_dtype"] = "torch.float32"
    return settings
