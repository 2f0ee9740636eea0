"""A job as DeepSpeed's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.frameworks.framework import Expressed, framework
from meshwright.frameworks.hugging_face.widths import kind_of
from meshwright.frameworks.inverse import launch_of, lost, unsaid
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Optimizer, Precision, Schedule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

Z = "zero_optimization."
HALVES = {int(Precision.BF16): "bf16", int(Precision.FP16): "fp16"}
_DTYPES = {2: "bf16", 4: "fp32"}
_OPTIMIZERS: dict[int, tuple[str, dict[str, Any]]] = {
    int(Optimizer.ADAM): ("AdamW", {}),
    int(Optimizer.ADAFACTOR): ("Adafactor", {}),
    int(Optimizer.MUON): ("Muon", {}),
    int(Optimizer.SGD): ("SGD", {}),
    int(Optimizer.SGD_MOMENTUM): ("SGD", {"momentum": 0.9}),
}
_UNTESTED = frozenset({"Adafactor", "SGD"})
REASONS = {
    "pp": "the program builds the PipelineModule with its stages",
    "recompute": "the program decides what it recomputes",
    "recompute_modules": "the program decides what it recomputes",
    "recompute_layers": "the program decides what it recomputes",
    "offload_activations": "the program decides what it recomputes, and only that goes to the host",
    "lora_rank": "adapters are the program's",
    "lora_all_linear": "adapters are the program's",
    "base_weight_bits": "quantized weights are the program's",
    "flash_attention": "attention is the model's",
    "fused_loss": "the loss is the model's",
    "loss_chunks": "the loss is the model's",
    "dp_replicate": "state is sharded over all data-parallel ranks",
    "reshard_after_forward": "stage 3 frees weights after use, up to stage3_max_live_parameters",
    "compile": "the program calls engine.compile()",
    "optimizer": "only the program can hand over this optimizer",
    "overlap_param_gather": "stage 3 prefetches; stages 1 and 2 gather after the step",
    "vocab_parallel": "automatic tensor parallelism leaves the vocabulary whole",
    "sequence_parallel": "sequence parallelism is Ulysses here",
    "offload_params": "weights go to the host at stage 3 only",
}


def write(own: Any, job: Job, version: str) -> Expressed:
    """The settings that state a job, what they do not say, and what DeepSpeed cannot run."""
    plan = job.plan.row(0)
    refused = refusals(plan)
    settings = {**batch(job, plan), **_optimizer(job, plan), **zero_settings(plan), **_mesh(plan)}
    gone = unsaid(framework("deepspeed"), version, settings, job, but_not=refused)
    return Expressed(
        settings=settings,
        launch=launch_of(job),
        lost=lost(gone, REASONS, own.title),
        refused=refused,
    )


def refusals(plan: Plan) -> dict[str, str]:
    """Why DeepSpeed cannot run the plan at all."""
    found: dict[str, str] = {}
    if plan.pp > 1 and plan.zero_stage >= 2:
        found["zero_stage"] = "the pipeline engine takes stage 0 or 1"
    if plan.pp > 1 and plan.schedule not in (int(Schedule.ONE_F_ONE_B), int(Schedule.DUALPIPE_V)):
        found["schedule"] = "its pipeline runs 1F1B or DualPipeV"
    if plan.pp > 1 and plan.vpp > 1:
        found["vpp"] = "a pipeline rank holds one chunk"
    if plan.cp > 1 and plan.context_parallel != int(ContextParallel.ULYSSES):
        found["context_parallel"] = "sequences are split by Ulysses only"
    if plan.ep > 1 and plan.tp > 1 and (plan.pp > 1 or plan.cp > 1):
        found["ep"] = "experts beside tensor parallelism take no pipeline and no Ulysses"
    if plan.ep > 1 and plan.etp > 1:
        found["etp"] = "experts are not split by tensor parallelism"
    if int(plan.precision) not in (*HALVES, int(Precision.FP32)):
        found["precision"] = "products are bf16, fp16 or fp32"
    return found


def batch(job: Job, plan: Plan) -> dict[str, Any]:
    """The triad: sequences of a step, of a micro-batch, and micro-batches of a step."""
    steps = max(int(num_microbatches(job)), 1)
    return {
        "train_batch_size": int(plan.micro_batch_size) * steps * int(plan.dp),
        "train_micro_batch_size_per_gpu": int(plan.micro_batch_size),
        "gradient_accumulation_steps": steps,
    }


def _optimizer(job: Job, plan: Plan) -> dict[str, Any]:
    named = _OPTIMIZERS.get(int(plan.optimizer))
    if named is None:
        return {}
    name, params = named
    settings: dict[str, Any] = {"optimizer.type": name}
    rate = job.workload.recipe.learning_rate
    if rate is not None:
        settings["optimizer.params.lr"] = rate
    settings |= {f"optimizer.params.{key}": value for key, value in params.items()}
    if name in _UNTESTED and plan.zero_stage:
        settings["zero_allow_untested_optimizer"] = True
    return settings


def zero_settings(plan: Plan, *, overlap: bool = True) -> dict[str, Any]:
    """Precision, stage of ZeRO and what lies on the host."""
    stage = int(plan.zero_stage)
    settings: dict[str, Any] = {**_precision(plan), Z + "stage": stage}
    if overlap:
        settings[Z + "overlap_comm"] = bool(plan.overlap_grad_reduce)
    share = float(plan.offload_optimizer)
    if share > 0:
        settings[Z + "offload_optimizer.device"] = "cpu"
        if share < 1:
            settings[Z + "offload_optimizer.ratio"] = share
    if plan.offload_params and stage == 3:
        settings[Z + "offload_param.device"] = "cpu"
    if plan.offload_activations:
        settings["activation_checkpointing.cpu_checkpointing"] = True
    return settings


def _precision(plan: Plan) -> dict[str, Any]:
    """The arithmetic, and the bytes of gradients kept and reduced where they are not its own."""
    half = HALVES.get(int(plan.precision))
    if half is None:
        wire = {"communication_data_type": "bf16"} if plan.reduce_bytes == 2 else {}
        return wire if kind_of(plan) == "single" else {}
    settings: dict[str, Any] = {}
    if kind_of(plan) == "autocast":
        dtype = {"bf16": "bfloat16", "fp16": "float16"}[half]
        settings = {"torch_autocast.enabled": True, "torch_autocast.dtype": dtype}
    else:
        settings = {f"{half}.enabled": True}
        if not plan.master_weights and plan.zero_stage and not plan.lora_rank:
            settings[f"{half}.{half}_master_weights_and_grads"] = True
            if half == "bf16" and plan.optimizer_state_bytes == 2:
                settings["bf16.bf16_optimizer_states"] = True
        if plan.grad_bytes == 4:
            settings["data_types.grad_accum_dtype"] = "fp32"
    if plan.reduce_bytes == 4:
        settings["communication_data_type"] = "fp32"
    return settings


def _mesh(plan: Plan) -> dict[str, Any]:
    settings = automatic(plan)
    if plan.pp > 1:
        settings["pipeline.stages"] = int(plan.pp)
    if plan.cp > 1:
        settings["sequence_parallel_size"] = int(plan.cp)
    return settings


def automatic(plan: Plan) -> dict[str, Any]:
    """AutoTP and AutoEP, which need nothing of the program."""
    settings: dict[str, Any] = {}
    if plan.tp > 1:
        settings["tensor_parallel.autotp_size"] = int(plan.tp)
        if plan.vocab_parallel:
            settings["tensor_parallel.vocab_parallel_lm_head"] = True
    if plan.ep > 1:
        settings["expert_parallel.enabled"] = True
        settings["expert_parallel.autoep_size"] = int(plan.ep)
    return settings
