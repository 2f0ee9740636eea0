"""A job in Megatron's settings, over the variables that all of its kin share.

The inverse of `meaning`: what it returns is raw, that is as a table's field takes it, and every
framework spells it by its own table.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.frameworks.megatron_lm.layout import written_layout
from meshwright.frameworks.megatron_lm.running import MODULES
from meshwright.frameworks.megatron_lm.worded_model import model_words
from meshwright.plan.plan import ContextParallel, Optimizer, Precision, Recompute, Schedule
from meshwright.plan.stages import chunk_layers
from meshwright.plan.words import MODULES as MODULE_BITS

if TYPE_CHECKING:
    from meshwright.plan.job import Job, Recipe, Runtime, Workload
    from meshwright.plan.plan import Plan

_CONTEXT = {
    ContextParallel.RING: "p2p",
    ContextParallel.ALL_GATHER: "all_gather",
    ContextParallel.ULYSSES: "a2a",
    ContextParallel.HIERARCHICAL: "a2a+p2p",
}
_STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")
_WIDTHS = {4: "fp32", 2: "bf16", 1: "fp8"}
_OPTIMIZERS = {
    Optimizer.ADAM: ("adam", {}),
    Optimizer.MUON: ("muon", {}),
    Optimizer.SGD: ("sgd", {"sgd_momentum": 0.0}),
    Optimizer.SGD_MOMENTUM: ("sgd", {}),
}
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
REASONS = {
    "overlap_pp": "transfers overlap in the interleaved schedule only",
    "offload_activations": "activations go to the host by whole layers of a stage",
    "param_bytes": "weights have the width of the precision",
    "grad_bytes": "gradients are accumulated in fp32 or in the width of the weights",
    "reduce_bytes": "gradients are reduced in the width they are accumulated in",
    "master_weights": "16-bit weights have an fp32 copy, fp32 weights have none",
    "vocab_parallel": "embedding and head are always split over tp",
    "loss_parallel": "the loss is always computed on split logits",
    "recompute_modules": "a module of that kind cannot be recomputed alone",
    "overlap_grad_reduce": "torch FSDP always overlaps",
    "overlap_param_gather": "gathers overlap where gradients' reduction does, and with sharding",
    "reshard_after_forward": "Megatron-FSDP gives parameters back after every forward pass",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """Raw values by variable, and why something has none."""

    values: dict[str, Any] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def wording(job: Job, *, layouts: bool = True) -> Wording:
    """The settings that state one plan; `layouts` tells whether explicit layouts exist."""
    plan = job.plan.row(0)
    said = Wording()
    _mesh(job, plan, said)
    _pipeline(job, plan, said, layouts=layouts)
    _sharding(plan, said)
    _numbers(plan, said)
    _optimizer(plan, said)
    _recompute(plan, said)
    _offload(job, plan, said)
    _overlaps(plan, said)
    _workload(job.workload, plan, said)
    said.values.update(model_words(job.model))
    _vocabulary(job, plan, said)
    _absent(plan, said)
    return said


def _mesh(job: Job, plan: Plan, said: Wording) -> None:
    said.values.update({"tp": plan.tp, "pp": plan.pp, "cp": plan.cp})
    said.values["sequence_parallel"] = bool(plan.sequence_parallel) and plan.tp > 1
    if job.model.is_moe or plan.ep > 1:
        said.values.update({"ep": plan.ep, "etp": plan.etp})
    if plan.cp > 1:
        kind = ContextParallel(int(plan.context_parallel))
        said.values["cp_comm_type"] = [_CONTEXT[kind]]
        if kind is ContextParallel.HIERARCHICAL:
            sizes = [plan.cp_inner, plan.cp // max(int(plan.cp_inner), 1)]
            said.values["hierarchical_context_parallel_sizes"] = sizes


def _pipeline(job: Job, plan: Plan, said: Wording, *, layouts: bool) -> None:
    """Virtual stages, the split, and schedules that only forks have."""
    said.refused.update(_foreign_schedule(plan))
    if plan.pp == 1:
        return
    layers = chunk_layers(job.model, plan)
    slots = job.model.num_hidden_layers + int(plan.embedding_in_split) + int(plan.loss_in_split)
    ends = int(plan.first_stage_layers), int(plan.last_stage_layers)
    even = _is_even(plan, slots, ends)
    if plan.layout is None and even:
        said.values.update({v: n for v, n in zip(_ENDS, ends, strict=True) if n})
        said.values["embedding_in_split"] = bool(plan.embedding_in_split)
        said.values["loss_in_split"] = bool(plan.loss_in_split)
        if plan.vpp > 1:
            said.values["vpp"] = plan.vpp
    elif layouts:
        mtp = sum(run.count for run in job.model.mtp)
        said.values["pipeline_layout"] = written_layout(layers, mtp=mtp)
    else:
        said.refused["layout"] = "explicit layouts came with 0.13, and the stages are not equal"


_ENDS = ("first_stage_layers", "last_stage_layers")


def _is_even(plan: Plan, slots: int, ends: tuple[int, int]) -> bool:
    """Whether Megatron splits the layers as meshwright does, without being told every stage."""
    stages = plan.pp - sum(n > 0 for n in ends)
    if any(n % plan.vpp for n in ends):
        return False
    if any(ends) and (plan.embedding_in_split or plan.loss_in_split):
        return False
    rest = slots - sum(ends)
    return rest % (stages * plan.vpp) == 0 if stages else rest == 0


def _foreign_schedule(plan: Plan) -> dict[str, str]:
    """Why Megatron has no such order of passes, if it has none."""
    schedule = Schedule(int(plan.schedule))
    if schedule is Schedule.ONE_F_ONE_B or plan.pp == 1:
        return {}
    name = schedule.name.lower().replace("_", "-")
    where = "MindSpeed has it" if schedule is Schedule.DUALPIPE_V else "a fork may have it"
    return {"schedule": f"Megatron runs 1F1B, interleaved or not, and no {name}; {where}"}


def _sharding(plan: Plan, said: Wording) -> None:
    """The distributed optimizer for stage 1, Megatron-FSDP beyond."""
    stage = int(plan.zero_stage)
    said.values["use_distributed_optimizer"] = stage > 0
    if stage > 1:
        said.values["use_megatron_fsdp"] = True
        said.values["data_parallel_sharding_strategy"] = _STRATEGIES[stage]
        said.values["ckpt_format"] = "fsdp_dtensor"
        said.values["init_model_with_meta_device"] = True
    if plan.dp_replicate > 1:
        said.values["num_distributed_optimizer_instances"] = plan.dp_replicate


def _numbers(plan: Plan, said: Wording) -> None:
    """Precision words, and the width of gradients."""
    precision = Precision(int(plan.precision))
    half = "fp16" if precision is Precision.FP16 else "bf16"
    if precision is not Precision.FP32:
        said.values[half] = True
        narrow = plan.grad_bytes <= 2 and half == "bf16"
        said.values["grad_reduce_in_bf16"] = narrow
        said.values["accumulate_allreduce_grads_in_fp32"] = plan.grad_bytes > 2
    if precision in (Precision.FP8, Precision.MXFP8):
        said.values["fp8_format"] = "e4m3" if precision is Precision.MXFP8 else "hybrid"
        said.values["fp8_recipe"] = "mxfp8" if precision is Precision.MXFP8 else "delayed"
        said.values["fp8_param_gather"] = plan.param_bytes == 1
    if precision is Precision.NVFP4:
        said.values["fp4_format"] = "e2m1"


def _optimizer(plan: Plan, said: Wording) -> None:
    kind = Optimizer(int(plan.optimizer))
    if kind not in _OPTIMIZERS:
        name = kind.name.lower().replace("_", "-")
        said.lost["optimizer"] = f"Megatron has no {name}; adam is written"
    name, more = _OPTIMIZERS.get(kind, ("adam", {}))
    said.values.update({"optimizer": name, **more})
    width = _WIDTHS.get(int(plan.optimizer_state_bytes))
    if width not in (None, "fp32"):
        said.values.update({"use_precision_aware_optimizer": True})
        said.values.update({"exp_avg_dtype": width, "exp_avg_sq_dtype": width})
    if plan.offload_optimizer > 0:
        share = float(plan.offload_optimizer)
        said.values.update({"optimizer_offload": True, "use_precision_aware_optimizer": True})
        said.values["offload_optimizer_ratio"] = share


def _recompute(plan: Plan, said: Wording) -> None:
    kind = Recompute(int(plan.recompute))
    if kind is Recompute.SELECTIVE:
        bits = int(plan.recompute_modules)
        said.values["recompute"] = "selective"
        known = [n for n, word in MODULES.items() if bits & MODULE_BITS[word]]
        said.values["recompute_modules"] = known or ["core_attn"]
    elif kind is Recompute.FULL:
        layers = int(plan.recompute_layers)
        block = bool(layers) and not plan.recompute_uniform
        said.values.update(
            {"recompute": "full", "recompute_method": "block" if block else "uniform"}
        )
        said.values["recompute_num_layers"] = layers or 1
        said.values["distribute_saved"] = bool(plan.distribute_saved)


def _offload(job: Job, plan: Plan, said: Wording) -> None:
    """Activations move to the host by whole layers."""
    share = float(plan.offload_activations)
    if share > 0:
        held = max(job.model.num_hidden_layers / int(plan.pp), 1.0)
        said.values["cpu_offloading_num_layers"] = max(round(share * held), 1)


def _overlaps(plan: Plan, said: Wording) -> None:
    said.values["overlap_grad_reduce"] = bool(plan.overlap_grad_reduce)
    gather = bool(plan.overlap_param_gather) and plan.zero_stage > 0
    gather &= bool(plan.overlap_grad_reduce)  # Megatron asserts that one brings the other
    said.values["overlap_param_gather"] = gather
    said.values["overlap_tp"] = bool(plan.overlap_tp) and plan.tp > 1
    said.values["overlap_ep"] = bool(plan.overlap_ep) and plan.ep > 1
    if said.values["overlap_ep"]:
        said.values["moe_token_dispatcher_type"] = "alltoall"  # the default gathers, unhidden
    said.values["overlap_pp"] = bool(plan.overlap_pp)
    if plan.cuda_graph:
        said.values["cuda_graph_impl"] = "local"
    if plan.fused_loss:
        said.values["cross_entropy_loss_fusion"] = True
    if not plan.flash_attention:
        said.values["attention_backend"] = "unfused"


def _workload(workload: Workload, plan: Plan, said: Wording) -> None:
    """Batch, length, learning rate, data, checkpoints."""
    said.values.update(
        {
            "micro_batch_size": plan.micro_batch_size,
            "global_batch_size": workload.global_batch_size,
            "seq_len": workload.seq_len,
        }
    )
    tokens = workload.train_tokens
    if tokens:
        batch = workload.seq_len * workload.global_batch_size
        said.values["train_iters"] = max(round(tokens / batch), 1)
    recipe, loading = workload.recipe, workload.loading
    said.values.update(
        _stated(
            learning_rate=recipe.learning_rate,
            per_token_loss=_by_tokens(recipe),
            deterministic=recipe.deterministic,
            eval_global_batch_size=recipe.eval_global_batch_size,
            eval_micro_batch_size=recipe.eval_micro_batch_size,
            num_workers=loading.num_workers,
            mock_data=loading.mock_data,
            checkpoint_interval_steps=loading.checkpoint_interval_steps,
            checkpoint_async=loading.checkpoint_async,
        )
    )
    _runtime(workload.runtime, said)


def _by_tokens(recipe: Recipe) -> bool | None:
    """Whether the loss is a mean over tokens, as every trainer of answers alone has it."""
    return True if recipe.per_token_loss is None and recipe.masked_loss else recipe.per_token_loss


def _runtime(runtime: Runtime, said: Wording) -> None:
    """Dispatch, balancing, communication."""
    minutes = runtime.collective_timeout_s
    stated = _stated(
        moe_token_dispatcher_type=runtime.expert_dispatcher,
        grouped_gemm=runtime.grouped_gemm,
        expert_capacity_factor=runtime.expert_capacity_factor,
        router_dtype=runtime.router_dtype,
        moe_router_padding=runtime.router_padding,
        manual_gc=runtime.manual_gc,
        straggler_detection=runtime.straggler_detection,
        bucket_elements=runtime.bucket_elements,
        use_sharp=runtime.use_sharp,
        collective_timeout_minutes=None if minutes is None else max(round(minutes / 60), 1),
    )
    said.values.update(stated)
    balancing = runtime.expert_balancing
    if balancing == "bias":
        said.values.update({"expert_bias": True, "router_score_function": "sigmoid"})
    elif balancing is not None:
        said.values["load_balancing"] = [balancing]


def _stated(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _vocabulary(job: Job, plan: Plan, said: Wording) -> None:
    """The multiple that pads the vocabulary to the plan's rows, or not at all."""
    rows, size, tp = int(plan.padded_vocab_size), job.model.vocab_size, int(plan.tp)
    said.values["vocab_size"] = size
    wanted = rows or size
    choices = (128, *(2**k for k in range(20, -1, -1)), max(wanted // tp, 1))
    fitting = (d for d in choices if -(-size // (d * tp)) * d * tp == wanted)
    multiple = next(fitting, 1 if not rows else None)
    if multiple is not None:
        said.values["make_vocab_size_divisible_by"] = multiple
    else:
        said.lost["padded_vocab_size"] = f"no multiple of tp={tp} pads {size} to {rows}"


def _absent(plan: Plan, said: Wording) -> None:
    """What Megatron has no setting for at all."""
    if plan.lora_rank:
        why = "Megatron-LM trains every parameter; Megatron-Bridge has adapters"
        said.refused["lora_rank"] = why
    if plan.base_weight_bits:
        said.lost["base_weight_bits"] = "weights are not quantized for training"
    if plan.vocab_over_pipeline:
        said.lost["vocab_over_pipeline"] = "only the VocabularyParallelism fork has it"
    if plan.vocab_interlaced:
        said.lost["vocab_interlaced"] = "only the VocabularyParallelism fork has it"
    if plan.loss_chunks > 1:
        said.lost["loss_chunks"] = "the loss is computed on all logits of a micro-batch at once"
    if plan.offload_params:
        said.lost["offload_params"] = "parameters stay on the GPU"
    if plan.compile:
        said.lost["compile"] = "Megatron fuses by hand and does not compile whole layers"


def environment(job: Job) -> dict[str, str]:
    """Environment variables that the plan needs: one queue for TP or CP, several for FSDP.

    Source: megatron/training/arguments.py, `validate_args`; from Blackwell on it asks for none.
    """
    plan = job.plan.row(0)
    stated = dict(job.workload.runtime.environment)
    if _CONNECTIONS in stated or job.cluster.gpu.generation.startswith("blackwell"):
        return stated
    if plan.zero_stage < 2 and (plan.tp > 1 or plan.cp > 1):
        stated[_CONNECTIONS] = "32" if plan.overlap_ep else "1"
    return stated
