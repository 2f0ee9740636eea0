"""accelerate's mesh: ParallelismConfig and the handlers of its axes.

Sections 4.1, 4.2, 5.1 and 5.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import degree, runs_deepspeed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_MESH = "accelerate src/accelerate/parallelism_config.py ParallelismConfig (1.15.0)"
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
