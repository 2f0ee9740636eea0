"""What accelerate demands: its mesh, its FSDP plugin and its data loaders.

Sections 4.1, 4.2, 5.1, 5.3 and 6.1 of the guidelines. Programs on top of it (axolotl, trl,
LLaMA-Factory) meet the same checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import data_parallel, degree, runs_deepspeed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_MESH = "accelerate src/accelerate/parallelism_config.py ParallelismConfig (1.15.0)"
_PLUGIN = "accelerate src/accelerate/utils/dataclasses.py FullyShardedDataParallelPlugin (1.15.0)"
_AXES = ("dp_replicate", "dp_shard", "tp", "cp")
_STRATEGIES = ("allgather", "alltoall")


def _product(k: Knobs) -> int:
    product = 1
    for name in _AXES:
        product *= degree(k, name)
    return product


def _version(k: Knobs) -> int:
    """1 or 2, the generation of FSDP that is asked for."""
    return int(k.get("fsdp_version") or 1)


# The mesh


@demand(
    "DAT104",
    "Accelerate mesh size differs from process count",
    severity=Severity.ERROR,
    section="4.1",
    scope="accelerate>=1.10",
    source=f"{_MESH} _validate_accelerator",
    consequence="ValueError: ParallelismConfig total_size does not match num_processes. Please "
    "adjust dp_replicate_size/dp_shard_size/tp_size/cp_size.",
)
def mesh_is_the_processes(k: Knobs) -> bool:
    """Replicas * shards * tp * cp must be the processes that were started.

    All degrees 1 is plain replication over all of them. With DeepSpeed's Ulysses back end
    accelerate skips the check, Megatron-LM below it has a mesh of its own, and FSDP1 has none.

    Fails: knobs(framework="accelerate 1.15", dp_shard=4, tp=1, num_gpus=8)
    Passes: knobs(framework="accelerate 1.15", dp_shard=4, tp=2, num_gpus=8)
    Passes: knobs(framework="accelerate 1.15", dp_shard=1, tp=1, num_gpus=8)
    Passes: knobs(framework="accelerate 1.15", tp=2, num_gpus=8, use_megatron_lm=True)
    """
    if degree(k, "ulysses") > 1 or runs_deepspeed(k) or k.get("dp_shard_auto", False):
        return False
    if k.get("use_megatron_lm", False) or (k.get("use_fsdp", False) and _version(k) == 1):
        return False
    return _product(k) not in (1, k.num_gpus)


@mesh_is_the_processes.message
def _(k: Knobs) -> str:
    factors = " * ".join(f"{name} {degree(k, name)}" for name in _AXES)
    return f"{factors} = {_product(k)}, but {k.num_gpus} processes"


@mesh_is_the_processes.fix
def _(k: Knobs) -> Mapping[str, Any]:
    others = _product(k) // degree(k, "dp_shard")
    return {"dp_shard": k.num_gpus // others} if k.num_gpus % others == 0 else {}


@demand(
    "DAT209",
    "TP/CP over pure replication (accelerate)",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate>=1.10",
    source=f"{_MESH} __post_init__",
    consequence="ValueError: Tensor/Context parallelism (tp/cp_size > 1) cannot be used with pure "
    "data parallelism (dp_replicate_size > 1 and dp_shard_size == 1). Please set dp_shard_size > 1",
)
def model_parallel_replicas_are_sharded(k: Knobs) -> bool:
    """accelerate composes tensor and context parallelism with FSDP, not with DDP.

    Shard instead of replicating, or do both (HSDP).

    Fails: knobs(framework="accelerate 1.15", dp_replicate=2, dp_shard=1, tp=2)
    Passes: knobs(framework="accelerate 1.15", dp_replicate=1, dp_shard=2, tp=2)
    Passes: knobs(framework="accelerate 1.15", dp_replicate=2, dp_shard=2, tp=2)
    """
    ulysses = degree(k, "ulysses") > 1 and k.get("ring_cp") is None  # cp is then its ranks
    wide = degree(k, "tp") > 1 or (degree(k, "cp") > 1 and not ulysses)
    sharded = degree(k, "dp_shard") > 1 or k.get("dp_shard_auto", False)
    return wide and degree(k, "dp_replicate") > 1 and not sharded


@model_parallel_replicas_are_sharded.message
def _(k: Knobs) -> str:
    return (
        f"dp_replicate {k.dp_replicate} with dp_shard {degree(k, 'dp_shard')} beside tp "
        f"{degree(k, 'tp')}, cp {degree(k, 'cp')}"
    )


@model_parallel_replicas_are_sharded.fix
def _(k: Knobs) -> Mapping[str, Any]:
    return {"dp_shard": k.dp_replicate, "dp_replicate": 1}


@demand(
    "DAT210",
    "FSDP2 without a dimension to shard over",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate>=1.12",
    source=f"{_MESH} _validate_accelerator",
    consequence="ValueError: FSDP is enabled but the parallelism config has no dimension for FSDP "
    "to shard across",
)
def fsdp_has_ranks_to_shard_over(k: Knobs) -> bool:
    """With a mesh that leaves neither dp_shard nor cp, FSDP has one rank to shard over.

    Fails: knobs(framework="accelerate 1.15", use_fsdp=True, fsdp_version=2, dp_shard=1, tp=8,
        num_gpus=8)
    Passes: knobs(framework="accelerate 1.15", use_fsdp=True, fsdp_version=2, dp_shard=2, tp=4,
        num_gpus=8)
    """
    if not k.get("use_fsdp", False) or _version(k) != 2:
        return False
    if k.get("dp_shard_auto", False) or _product(k) == 1:
        return False
    return bool(degree(k, "dp_shard") == 1 and degree(k, "cp") == 1 and k.num_gpus > 1)


@fsdp_has_ranks_to_shard_over.message
def _(k: Knobs) -> str:
    return (
        f"FSDP2 on {k.num_gpus} processes with dp_shard 1, cp 1 (tp {degree(k, 'tp')}, "
        f"dp_replicate {degree(k, 'dp_replicate')})"
    )


@demand(
    "MOD185",
    "CP and Ulysses SP together",
    severity=Severity.ERROR,
    section="5.1",
    scope="accelerate>=1.12",
    source=f"{_MESH} __post_init__",
    consequence="ValueError: Context Parallelism (CP) and Sequence Parallelism (SP) are mutually "
    "exclusive.",
    says="cp_size {ring_cp} and sp_size {ulysses}",
)
def one_way_to_split_the_sequence(k: Knobs) -> bool:
    """Both split the same dimension: one by ring or gather, the other over heads.

    Fails: knobs(framework="accelerate 1.15", ring_cp=2, ulysses=2)
    Passes: knobs(framework="accelerate 1.15", ring_cp=2, ulysses=1)
    """
    return degree(k, "ring_cp") > 1 and degree(k, "ulysses") > 1


@demand(
    "MOD323",
    "accelerate CP/SP back ends",
    severity=Severity.ERROR,
    section="5.3",
    scope="accelerate>=1.12",
    source=_MESH,
    consequence="ValueError: cp_backend must be one of ['torch'], cp_comm_strategy one of "
    "'allgather' or 'alltoall', sp_backend one of ['deepspeed']",
)
def back_ends_are_known(k: Knobs) -> bool:
    """Context parallelism is torch's, sequence parallelism DeepSpeed's.

    Fails: knobs(framework="accelerate 1.15", cp=2, cp_comm_strategy="ring")
    Passes: knobs(framework="accelerate 1.15", cp=2, cp_comm_strategy="allgather")
    Fails: knobs(framework="accelerate 1.15", ulysses=2, sp_backend="ring")
    """
    context = k.get("cp_backend", "torch") != "torch" or (
        k.get("cp_comm_strategy", "allgather") not in _STRATEGIES
    )
    wrong_cp = degree(k, "cp") > 1 and context
    return wrong_cp or (
        degree(k, "ulysses") > 1 and k.get("sp_backend", "deepspeed") != "deepspeed"
    )


@back_ends_are_known.message
def _(k: Knobs) -> str:
    return (
        f"cp_backend = {k.get('cp_backend', 'torch')}, cp_comm_strategy = "
        f"{k.get('cp_comm_strategy', 'allgather')}, sp_backend = {k.get('sp_backend', 'deepspeed')}"
    )


@back_ends_are_known.fix
def _(_k: Knobs) -> Mapping[str, Any]:
    return {"cp_backend": "torch", "cp_comm_strategy": "allgather", "sp_backend": "deepspeed"}


@demand(
    "MOD186",
    "Ulysses attention implementation",
    severity=Severity.ERROR,
    section="5.1",
    scope="accelerate@1.12; deepspeed@0.19",
    source="accelerate src/accelerate/utils/dataclasses.py DeepSpeedSequenceParallelConfig "
    "(1.15.0); DeepSpeed deepspeed/runtime/sequence_parallel/ulysses_sp.py (0.19.8)",
    consequence="ValueError: Invalid sp_attn_implementation: 'eager' and 'flex_attention' are not "
    "supported; when sp_seq_length_is_variable is False sp_seq_length must be provided",
    consequences={"deepspeed": "ValueError: eager attention needs a 4D mask"},
)
def ulysses_knows_the_kernel(k: Knobs) -> bool:
    """Eager attention wants a mask of the whole sequence, which no rank holds.

    A fixed sequence length must be said. accelerate refuses flex_attention, DeepSpeed takes it.

    Fails: knobs(framework="accelerate 1.15", ulysses=2, attn_implementation="eager",
        sp_seq_length_is_variable=True)
    Fails: knobs(framework="accelerate 1.15", ulysses=2, sp_seq_length_is_variable=False)
    Passes: knobs(framework="accelerate 1.15", ulysses=2, attn_implementation="sdpa",
        sp_seq_length=8192)
    """
    if degree(k, "ulysses") == 1:
        return False
    refused = ["eager", "paged|eager"]
    refused += ["flex_attention"] if k.framework.startswith("accelerate") else []
    unsized = k.get("sp_seq_length_is_variable", True) is False and k.get("sp_seq_length") is None
    return k.get("attn_implementation") in refused or unsized


@ulysses_knows_the_kernel.message
def _(k: Knobs) -> str:
    return (
        f"Ulysses degree {k.ulysses} with attn_implementation = {k.get('attn_implementation')}, "
        f"sp_seq_length = {k.get('sp_seq_length')}"
    )


# FSDP keys


def _is_truth(value: Any) -> bool:
    """Whether a value of a file is a truth value, also as text."""
    return isinstance(value, bool) or str(value).lower() in ("true", "false", "0", "1")


@demand(
    "DAT286",
    "A mesh of ParallelismConfig under FSDP1",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate>=1.10",
    source=f"{_MESH} _validate_accelerator",
    consequence="ValueError: ParallelismConfig is only compatible DistributedType.FSDP (version 2) "
    "or DistributedType.Multi{Device} or DistributedType.DEEPSPEED",
    suggest={"fsdp_version": 2},
)
def mesh_is_sharded_by_fsdp2(k: Knobs) -> bool:
    """FSDP1 has no device mesh, and fsdp_version is 1 unless a file says otherwise.

    Fails: accelerate 1.15:
        distributed_type: FSDP
        fsdp_config:
          fsdp_version: 1
        parallelism_config:
          parallelism_config_dp_shard_size: 4
        num_processes: 4
    Passes: accelerate 1.15:
        distributed_type: FSDP
        fsdp_config:
          fsdp_version: 2
        parallelism_config:
          parallelism_config_dp_shard_size: 4
        num_processes: 4
    """
    if not k.get("use_fsdp", False) or _version(k) != 1:
        return False
    stated = any(k.is_stated(name) for name in ("dp_shard", "tp", "cp"))
    return stated and _product(k) > 1


@mesh_is_sharded_by_fsdp2.message
def _(k: Knobs) -> str:
    degrees = ", ".join(f"{name} {degree(k, name)}" for name in _AXES)
    return f"{degrees} with fsdp_version 1"


@demand(
    "DAT238",
    "FSDP2 with a string reshard policy, or FSDP1 with a bool",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate@1.6",
    source=_PLUGIN,
    consequence="ValueError: FSDP2 wants a bool (invalid truth value full_shard); FSDP1: "
    "reshard_after_forward set to True. This is not supported with FSDP1, please set to a `str`",
    says="fsdp_reshard_after_forward = {fsdp_reshard_stated} with fsdp_version {fsdp_version}",
)
def policy_is_of_its_version(k: Knobs) -> bool:
    """The same key is a truth value in FSDP2 and the name of a sharding strategy in FSDP1.

    Fails: knobs(framework="accelerate 1.15", fsdp_version=2, fsdp_reshard_stated="FULL_SHARD")
    Fails: knobs(framework="accelerate 1.15", fsdp_version=1, fsdp_reshard_stated=True)
    Passes: knobs(framework="accelerate 1.15", fsdp_version=2, fsdp_reshard_stated=True)
    """
    return _is_truth(k.fsdp_reshard_stated) != (_version(k) == 2)


@policy_is_of_its_version.fix
def _(k: Knobs) -> Mapping[str, Any]:
    two = _version(k) == 2
    return {"fsdp_reshard_stated": True if two else "FULL_SHARD"}


@demand(
    "DAT239",
    "FSDP2 with forward_prefetch or LOCAL_STATE_DICT",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate@1.6",
    source=_PLUGIN,
    consequence="ValueError: forward_prefetch is not yet implemented in FSDP2, set to None or use "
    "`fsdp_version=1`; FSDP2 does not support LOCAL_STATE_DICT",
)
def fsdp2_has_the_key(k: Knobs) -> bool:
    """FSDP2 orders its gathers itself and has no state dict of one rank's flat shards.

    Accelerate's own file hands forward_prefetch to FSDP1 alone, so that there it changes nothing.

    Fails: knobs(framework="accelerate 1.15", fsdp_version=2, fsdp_forward_prefetch=True)
    Passes: accelerate 1.15:
        distributed_type: FSDP
        fsdp_config:
          fsdp_version: 2
          fsdp_forward_prefetch: true
    Fails: knobs(framework="accelerate 1.15", fsdp_version=2,
        fsdp_state_dict_type="LOCAL_STATE_DICT")
    Passes: knobs(framework="accelerate 1.15", fsdp_version=1, fsdp_forward_prefetch=True)
    """
    if _version(k) != 2:
        return False
    local = k.get("fsdp_state_dict_type") == "LOCAL_STATE_DICT"
    return bool(k.get("fsdp_forward_prefetch", False)) or local


@fsdp2_has_the_key.message
def _(k: Knobs) -> str:
    return (
        f"fsdp_version 2 with forward_prefetch = {k.get('fsdp_forward_prefetch', False)}, "
        f"state_dict_type = {k.get('fsdp_state_dict_type')}"
    )


@fsdp2_has_the_key.fix
def _(k: Knobs) -> Mapping[str, Any]:
    if k.get("fsdp_state_dict_type") == "LOCAL_STATE_DICT":
        return {"fsdp_forward_prefetch": None, "fsdp_state_dict_type": "SHARDED_STATE_DICT"}
    return {"fsdp_forward_prefetch": None}


@demand(
    "CMP127",
    "Activation offload without checkpointing or FSDP2",
    severity=Severity.ERROR,
    section="6.1",
    scope="accelerate>=1.14",
    source=_PLUGIN,
    consequence="ValueError: `activation_checkpointing_offload=True` requires "
    "`activation_checkpointing=True` and `fsdp_version=2`.",
    suggest={"fsdp_activation_checkpointing": True, "fsdp_version": 2},
)
def offloaded_activations_are_checkpoints(k: Knobs) -> bool:
    """What goes to the host are the checkpoints of FSDP2's wrapped layers.

    Fails: knobs(framework="accelerate 1.15", activation_checkpointing_offload=True,
        fsdp_activation_checkpointing=False, fsdp_version=2)
    Passes: knobs(framework="accelerate 1.15", activation_checkpointing_offload=True,
        fsdp_activation_checkpointing=True, fsdp_version=2)
    """
    if not k.get("activation_checkpointing_offload", False):
        return False
    return not k.get("fsdp_activation_checkpointing", False) or _version(k) != 2


@offloaded_activations_are_checkpoints.message
def _(k: Knobs) -> str:
    return (
        "activation_checkpointing_offload = True with activation_checkpointing = "
        f"{k.get('fsdp_activation_checkpointing', False)}, fsdp_version {_version(k)}"
    )


# Batches


@demand(
    "DAT129",
    "split_batches with an indivisible batch",
    severity=Severity.ERROR,
    section="4.1",
    scope="accelerate",
    source="accelerate src/accelerate/data_loader.py BatchSamplerShard (1.15.0)",
    consequence="ValueError: To use `BatchSamplerShard` in `split_batches` mode, the batch size "
    "needs to be a round multiple of the number of processes",
)
def split_batch_divides(k: Knobs) -> bool:
    """With split_batches the loader's batch is the global one and is cut over the processes.

    Fails: knobs(framework="accelerate 1.15", split_batches=True, dataloader_batch_size=3, dp=8)
    Passes: knobs(framework="accelerate 1.15", split_batches=True, dataloader_batch_size=16, dp=8)
    """
    return bool(k.get("split_batches", False)) and k.dataloader_batch_size % data_parallel(k) != 0


@split_batch_divides.message
def _(k: Knobs) -> str:
    return f"a loader batch of {k.dataloader_batch_size} over {data_parallel(k)} processes"


@demand(
    "DAT241",
    "Two sources of gradient accumulation",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate; transformers",
    source="accelerate src/accelerate/accelerator.py Accelerator.__init__ (1.15.0)",
    consequence="ValueError: You can only pass one of `gradient_accumulation_steps` and "
    "`gradient_accumulation_plugin`.",
    consequences={
        "transformers": "ValueError: AcceleratorConfig's num_steps and "
        "gradient_accumulation_steps cannot both be set"
    },
    says="gradient_accumulation_steps {gradient_accumulation_steps} beside a plugin's own count",
    suggest={"gradient_accumulation_steps": None},
)
def accumulation_is_said_once(k: Knobs) -> bool:
    """The steps stand in one argument or in the plugin's num_steps.

    Fails: knobs(framework="accelerate 1.15", gradient_accumulation_steps=4,
        accelerate_ga_plugin=True)
    Passes: knobs(framework="accelerate 1.15", gradient_accumulation_steps=4)
    """
    steps = k.get("gradient_accumulation_steps")
    return steps not in (None, 1) and bool(k.get("accelerate_ga_plugin", False))


@demand(
    "DAT285",
    "DeepSpeed settings beside a DeepSpeed file (accelerate)",
    severity=Severity.ERROR,
    section="4.2",
    scope="accelerate",
    source="accelerate src/accelerate/utils/dataclasses.py DeepSpeedPlugin "
    "_deepspeed_config_checks (1.15.0)",
    consequence="ValueError: When using `deepspeed_config_file`, the following accelerate config "
    "variables will be ignored",
    confidence="read",
    says="deepspeed_config_file with {ds_fields_beside_file} beside it: these must stand in the "
    "DeepSpeed file alone",
)
def the_deepspeed_file_says_it_all(k: Knobs) -> bool:
    """With a file of DeepSpeed's own, accelerate refuses settings that it would have to merge.

    Batch, stage, offload, clipping and precision stand in the file; the rest of the configuration
    names machines and processes.

    Fails: accelerate 1.15:
        distributed_type: DEEPSPEED
        deepspeed_config:
          deepspeed_config_file: ds_zero3.json
          zero_stage: 3
        num_processes: 8
    Passes: accelerate 1.15:
        distributed_type: DEEPSPEED
        deepspeed_config:
          deepspeed_config_file: ds_zero3.json
          zero3_init_flag: true
        num_processes: 8
    """
    return bool(k.get("ds_fields_beside_file"))
