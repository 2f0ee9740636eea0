"""Keys of accelerate's FSDP plugin, by its generation.

Sections 4.2 and 6.1 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.framework.degrees import degree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_MESH = "accelerate src/accelerate/parallelism_config.py ParallelismConfig (1.15.0)"
_PLUGIN = "accelerate src/accelerate/utils/dataclasses.py FullyShardedDataParallelPlugin (1.15.0)"
_AXES = ("dp_replicate", "dp_shard", "tp", "cp")


def _product(k: Knobs) -> int:
    product = 1
    for name in _AXES:
        product *= degree(k, name)
    return product


def _version(k: Knobs) -> int:
    """1 or 2, the generation of FSDP that is asked for."""
    return int(k.get("fsdp_version") or 1)


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
