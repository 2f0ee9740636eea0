"""fully_shard and DistributedDataParallel: meshes, groups and what they wrap.

Sections 4.2 and 5.2 of the guidelines. How a program wraps its modules is seldom in a file; these
rules speak where it is stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.demand import demand
from meshwright.rules.nearest import divisors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from meshwright.frameworks.knobs import Knobs

_FSDP = "PyTorch torch/distributed/fsdp/_fully_shard (2.13.0)"


def _sharded(k: Knobs) -> bool:
    """Whether parameters are sharded by fully_shard."""
    return bool(k.get("zero_stage", 0) == 3)


@demand(
    "DAT212",
    "fully_shard mesh is not 1D or 2D",
    severity=Severity.ERROR,
    section="4.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_init.py _validate_mesh",
    consequence="ValueError: fully_shard expects a 1D or 2D DeviceMesh; a 2D mesh for HSDP needs "
    "mesh_dim_names",
    says="fully_shard over a mesh of {fsdp_mesh_ndim} dimensions",
)
def mesh_shards_and_replicates(k: Knobs) -> bool:
    """One dimension shards, a second one replicates; others must be flattened into the first.

    Fails: knobs(framework="torch 2.13", fsdp_mesh_ndim=3)
    Passes: knobs(framework="torch 2.13", fsdp_mesh_ndim=2)
    """
    return k.fsdp_mesh_ndim not in (1, 2)


@demand(
    "DAT213",
    "Integer reshard_after_forward not a factor of the shard group",
    severity=Severity.ERROR,
    section="4.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_init.py _get_post_forward_mesh_info",
    consequence="ValueError: If passing reshard_after_forward as an int, it should be a factor of "
    "the shard mesh size",
    says="reshard_after_forward {fsdp_reshard_stated} in a shard group of {dp_shard}",
)
def smaller_group_divides_the_larger(k: Knobs) -> bool:
    """A number keeps parameters in groups of that many ranks between forward and backward.

    Fails: knobs(framework="torch 2.13", fsdp_reshard_stated=3, dp_shard=8)
    Passes: knobs(framework="torch 2.13", fsdp_reshard_stated=4, dp_shard=8)
    Passes: knobs(framework="torch 2.13", fsdp_reshard_stated=True, dp_shard=8)
    """
    stated = k.fsdp_reshard_stated
    if isinstance(stated, bool) or not isinstance(stated, int):
        return False
    return stated < 1 or k.dp_shard % stated != 0


@smaller_group_divides_the_larger.fix
def _(k: Knobs) -> Mapping[str, Any]:
    fitting = [d for d in divisors(int(k.dp_shard)) if d <= max(k.fsdp_reshard_stated, 1)]
    return {"fsdp_reshard_stated": fitting[-1]}


@demand(
    "MOD202",
    "Tied parameters in different FSDP groups",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_state.py _validate_no_duplicate_params",
    consequence="ValueError: Parameter is shared with a parameter already managed by another FSDP "
    "group",
    says="tie_word_embeddings = true with embedding and head in groups of their own",
)
def tied_weights_share_a_group(k: Knobs) -> bool:
    """A group owns its parameters; a weight of two groups would be sharded twice.

    Put embedding and head into one call of fully_shard, or leave both to the root.

    Fails: knobs(framework="torch 2.13", zero_stage=3, tie_word_embeddings=True,
        fsdp_wraps_tied_separately=True)
    Passes: knobs(framework="torch 2.13", zero_stage=3, tie_word_embeddings=True,
        fsdp_wraps_tied_separately=False)
    """
    tied = k.get("tie_word_embeddings", False) and k.get("fsdp_wraps_tied_separately", False)
    return bool(_sharded(k) and tied)


@demand(
    "MOD209",
    "Non-uniform parameter dtypes in one FSDP group",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_param_group.py _init_mp_dtypes",
    consequence="AssertionError: FSDP expects uniform original parameter dtype but got "
    "{torch.bfloat16, torch.float32}",
    says="fsdp_group_mixed_dtypes = {fsdp_group_mixed_dtypes}: several dtypes in one FSDP group",
)
def groups_have_one_dtype(k: Knobs) -> bool:
    """A group travels as one buffer, which has one dtype.

    Wrap parts that stay in FP32, such as routers, on their own.

    Fails: knobs(framework="torch 2.13", zero_stage=3, fsdp_group_mixed_dtypes=True)
    Passes: knobs(framework="torch 2.13", zero_stage=3, fsdp_group_mixed_dtypes=False)
    """
    return _sharded(k) and bool(k.get("fsdp_group_mixed_dtypes", False))


@demand(
    "MOD210",
    "Scalar parameters under fully_shard",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_init.py _verify_managed_param",
    consequence="ValueError: fully_shard doesn't support scalar parameters. Change it to a 1D "
    "tensor with numel equal to 1.",
    says="has_scalar_params = {has_scalar_params} under fully_shard",
)
def parameters_have_a_dimension(k: Knobs) -> bool:
    """A parameter is cut along its first dimension, and a scalar has none.

    Fails: knobs(framework="torch 2.13", zero_stage=3, has_scalar_params=True)
    Passes: knobs(framework="torch 2.13", zero_stage=3, has_scalar_params=False)
    """
    return _sharded(k) and bool(k.get("has_scalar_params", False))


@demand(
    "MOD211",
    "Uneven FSDP sharding on a dimension other than 0",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_param.py _init_sharded_param; torchtitan torchtitan/distributed/fsdp.py "
    "(0.3.0)",
    consequence="NotImplementedError: FSDP does not support uneven sharding on dim 1",
    says="dim {fsdp_shard_dim} of size {fsdp_dim_size} over {dp_shard} ranks",
)
def other_dimensions_divide(k: Knobs) -> bool:
    """Dimension 0 is padded to a multiple of the group, the others are not.

    Fails: knobs(framework="torch 2.13", zero_stage=3, fsdp_shard_dim=1, fsdp_dim_size=9,
        dp_shard=8)
    Passes: knobs(framework="torch 2.13", zero_stage=3, fsdp_shard_dim=0, fsdp_dim_size=9,
        dp_shard=8)
    """
    return _sharded(k) and k.fsdp_shard_dim > 0 and k.fsdp_dim_size % k.dp_shard != 0


@demand(
    "MOD212",
    "fully_shard on a container without forward",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch>=2.4",
    source=f"{_FSDP}/_fsdp_init.py _validate_module",
    consequence="ValueError: fully_shard does not support containers that do not implement forward",
    says="fsdp_wraps_container = {fsdp_wraps_container}: a ModuleList or ModuleDict is wrapped",
)
def wrapped_modules_have_a_forward(k: Knobs) -> bool:
    """Gathers hang on a module's forward pass, and a ModuleList has none.

    Wrap the blocks in it.

    Fails: knobs(framework="torch 2.13", fsdp_wraps_container=True)
    Passes: knobs(framework="torch 2.13", fsdp_wraps_container=False)
    """
    return bool(k.fsdp_wraps_container)


@demand(
    "MOD213",
    "Parameters left on meta",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch>=2.4; megatron-fsdp",
    source=f"{_FSDP}/_fsdp_param_group.py _validate_no_meta_params",
    consequence="RuntimeError: FSDP parameters should be materialized from meta device before "
    "training",
    says="meta_init = {meta_init} with materialized = {materialized}",
)
def parameters_exist(k: Knobs) -> bool:
    """A model built on the meta device has shapes but no values until to_empty and a load.

    Fails: knobs(framework="torch 2.13", meta_init=True, materialized=False)
    Passes: knobs(framework="torch 2.13", meta_init=True, materialized=True)
    """
    return bool(k.get("meta_init", False)) and not k.materialized


@demand(
    "MOD218",
    "DDP around a module without gradients",
    severity=Severity.ERROR,
    section="5.2",
    scope="torch",
    source="PyTorch torch/nn/parallel/distributed.py (2.13.0)",
    consequence="RuntimeError: DistributedDataParallel is not needed when a module doesn't have "
    "any parameter that requires a gradient.",
    says="{trainable_params} trainable parameters over dp {dp}",
)
def replicas_have_something_to_reduce(k: Knobs) -> bool:
    """Frozen parts need no replication; leave them out of the wrapper.

    Fails: knobs(framework="torch 2.13", dp=8, trainable_params=0)
    Passes: knobs(framework="torch 2.13", dp=8, trainable_params=1000)
    """
    return bool(k.get("dp", 1) > 1 and k.trainable_params == 0)
