"""A job in the words that transformers' trainer and the frameworks on top of it share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.frameworks.deepspeed.writing import HALVES, automatic, zero_settings
from meshwright.frameworks.hugging_face.adapters import ATTENTION
from meshwright.frameworks.hugging_face.optimizers import HF_NAMES
from meshwright.frameworks.hugging_face.widths import kind_of
from meshwright.plan.job import num_microbatches
from meshwright.plan.plan import ContextParallel, Optimizer, Recompute
from meshwright.plan.words import word

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

REASONS = {
    "recompute": "whole layers are recomputed, or nothing",
    "recompute_modules": "whole layers are recomputed, or nothing",
    "recompute_layers": "all layers are recomputed, or none",
    "recompute_uniform": "all layers are recomputed, or none",
    "loss_chunks": "logits are written whole, or never (Liger)",
    "param_bytes": "autocast keeps fp32 weights, FSDP fp32 shards, DeepSpeed 16 bits and a copy",
    "master_weights": "a separate fp32 copy is DeepSpeed's",
    "grad_bytes": "gradients have the width of the weights",
    "reduce_bytes": "gradients are reduced in the arithmetic's width under FSDP, in fp32 under DDP",
    "optimizer_state_bytes": "moments have the width of what the optimizer sees",
    "zero_stage": "one rank has nothing to shard over",
    "offload_activations": "FSDP2 alone can send them to the host",
    "offload_params": "weights go to the host under FSDP, or at stage 3",
    "offload_optimizer": "FSDP sends weights and optimizer to the host together",
    "sequence_parallel": "tensor parallelism is that of the model's tp_plan",
    "vocab_parallel": "tensor parallelism is that of the model's tp_plan",
    "loss_parallel": "the loss is computed on whole logits",
    "overlap_grad_reduce": "FSDP and DDP always overlap",
    "overlap_param_gather": "FSDP always prefetches; DDP has nothing to gather",
    "optimizer": "the trainer has no such optimizer",
    "dp_replicate": "replicas need a mesh of dp_replicate and dp_shard",
    "cuda_graph": "torch.compile decides about CUDA graphs",
    "lora_all_linear": "adapters sit on all linear layers, or on attention",
    "base_weight_bits": "frozen weights are quantized to 4 or 8 bits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """The fields that state degrees; "" where the framework has none."""

    replicate: str = ""
    shard: str = ""
    tp: str = ""
    cp: str = ""
    ulysses: str = ""
    ep: str = ""
    strategy: str = ""  # of a ring: allgather or alltoall
    experts_beside: bool = False  # experts are an axis beside the shards


HF_MESH = Mesh(
    replicate="parallelism_config.dp_replicate_size",
    shard="parallelism_config.dp_shard_size",
    tp="parallelism_config.tp_size",
    cp="parallelism_config.cp_size",
    ulysses="parallelism_config.sp_size",
    ep="distributed_config.ep_size",
    strategy="parallelism_config.cp_handler.cp_comm_strategy",
)
_RINGS = {int(ContextParallel.ALL_GATHER): "allgather", int(ContextParallel.RING): "alltoall"}
_RATIO = frozenset({0.0, 1.0})


def runs_by(plan: Plan) -> str:
    """ "deepspeed", "fsdp" or "ddp": what holds the plan's copies as the plan has them.

    DeepSpeed keeps a master copy and shards optimizer states alone; FSDP shards weights without
    one; DDP shards nothing.
    """
    stage = int(plan.zero_stage)
    ulysses = plan.cp > 1 and plan.context_parallel == int(ContextParallel.ULYSSES)
    offload = plan.offload_optimizer > 0 and not plan.offload_params
    single = kind_of(plan) == "single" and stage in (1, 2)
    if kind_of(plan) == "master" or stage in (1, 2) or ulysses or offload or single:
        return "deepspeed"
    return "fsdp" if stage == 3 else "ddp"


def refusals(
    plan: Plan, mesh: Mesh, title: str, *, inline: bool = True, elsewhere: str = ""
) -> dict[str, str]:
    """Why no trainer on top of transformers can run the plan.

    `inline` tells that DeepSpeed's JSON may stand in place, with its AutoTP and AutoEP;
    `elsewhere` what of the same name has model parallelism of another kind.
    """
    found: dict[str, str] = {}
    if plan.pp > 1:
        found["pp"] = f"{title} has no pipeline parallelism{elsewhere}"
    zero = runs_by(plan) == "deepspeed"
    for variable, degree, field in (("tp", plan.tp, mesh.tp), ("ep", plan.ep, mesh.ep)):
        if degree > 1 and not (inline if zero else field):
            under = " under DeepSpeed" * zero
            found[variable] = f"{title} has no setting for it{under}{elsewhere}"
    if plan.cp > 1 and not context_field(plan, mesh):
        found["context_parallel"] = f"{title} does not run {_kind(plan)} context parallelism"
    if plan.cp > 1 and zero and plan.context_parallel != int(ContextParallel.ULYSSES):
        found["context_parallel"] = "under DeepSpeed sequences are split by Ulysses only"
    if plan.ep > 1 and plan.etp not in (1, plan.tp):
        found["etp"] = "experts are not split by tensor parallelism of their own"
    if int(plan.precision) not in (*HALVES, 0):
        found["precision"] = "bf16, fp16 or fp32 are written; its FP8 hangs on a back end"
    return found


def _kind(plan: Plan) -> str:
    return str(word("context_parallel", plan.context_parallel))


def context_field(plan: Plan, mesh: Mesh) -> str:
    """The field that states a plan's context parallelism, "" where there is none."""
    if plan.context_parallel == int(ContextParallel.ULYSSES):
        return mesh.ulysses
    known = int(plan.context_parallel) in _RINGS
    ringed = mesh.strategy or plan.context_parallel == int(ContextParallel.RING)
    return mesh.cp if known and ringed else ""


def mesh_settings(plan: Plan, mesh: Mesh) -> dict[str, Any]:
    """Degrees above one; replicas beside shards where there are both."""
    settings: dict[str, Any] = {}
    zero = runs_by(plan) == "deepspeed"
    if plan.tp > 1 and mesh.tp and not zero:
        settings[mesh.tp] = int(plan.tp)
    if plan.ep > 1 and mesh.ep and not zero:
        settings[mesh.ep] = int(plan.ep)
    if plan.cp > 1 and (field := context_field(plan, mesh)):
        settings[field] = int(plan.cp)
        if field == mesh.cp and mesh.strategy:
            settings[mesh.strategy] = _RINGS[int(plan.context_parallel)]
    sharded = plan.zero_stage == 3 and runs_by(plan) == "fsdp"
    beside = plan.tp > 1 or plan.cp > 1 or plan.dp_replicate > 1
    if sharded and beside and mesh.shard:
        experts = int(plan.ep) if mesh.experts_beside else 1
        settings[mesh.shard] = max(int(plan.dp // plan.dp_replicate) // experts, 1)
        if plan.dp_replicate > 1 and mesh.replicate:
            settings[mesh.replicate] = int(plan.dp_replicate)
    return settings


def zero_inline(plan: Plan, prefix: str) -> dict[str, Any]:
    """DeepSpeed's JSON in place, with the trainer's values left to it."""
    settings: dict[str, Any] = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        **zero_settings(plan),
        **automatic(plan),
    }
    if plan.optimizer != int(Optimizer.ADAM):
        settings["zero_allow_untested_optimizer"] = True
    return {prefix + name: value for name, value in settings.items()}


def fsdp_settings(plan: Plan, prefix: str, *, offload: str) -> dict[str, Any]:
    """FSDP2's own settings under a prefix."""
    settings: dict[str, Any] = {prefix + "reshard_after_forward": bool(plan.reshard_after_forward)}
    settings[prefix + offload] = bool(plan.offload_params)
    settings[prefix + "auto_wrap_policy"] = "TRANSFORMER_BASED_WRAP"
    settings[prefix + "state_dict_type"] = "SHARDED_STATE_DICT"
    return settings


def steps_of(job: Job) -> int:
    """Micro-batches of a step."""
    return max(int(num_microbatches(job)), 1)


def optimizer_name(plan: Plan) -> str:
    """transformers' name of the plan's optimizer, Adam where it has none."""
    return HF_NAMES.get(str(word("optimizer", plan.optimizer)), HF_NAMES["adam"])


def recomputes(plan: Plan) -> bool:
    """Whether whole layers are recomputed."""
    return bool(plan.recompute == int(Recompute.FULL))


def half_of(plan: Plan) -> str:
    """ "bf16" or "fp16", "" in fp32."""
    return HALVES.get(int(plan.precision), "")


def targets(plan: Plan) -> Any:
    """The modules that carry adapters, as PEFT takes them."""
    return "all-linear" if plan.lora_all_linear else list(ATTENTION)
