"""The device meshes of a plan: which rank stands where on which axis.

Three meshes lie over the same ranks, slowest dim first. Dense parameters are cut over (pp,
dp_replicate, fsdp, tp), where "fsdp" is dp_shard and cp in one; experts over (pp, dp_replicate,
efsdp, ep, etp), which folds ep and etp over dp, cp and tp as Megatron does; sequences over (pp,
dp_replicate, dp_shard, cp, tp). "batch" is dp_replicate and fsdp in one: tokens differ along it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from meshwright.plan.degrees import degrees_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from meshwright.plan.plan import Plan

DENSE = ("pp", "dp_replicate", "fsdp", "tp")
SEQUENCE = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
EXPERT = ("pp", "dp_replicate", "efsdp", "ep", "etp")


class Mesh:
    """The meshes of a plan on this rank; needs an initialized default process group."""

    def __init__(self, plan: Plan, *, device_type: str) -> None:
        self.degrees = degrees_of(plan)
        self.device_type = device_type
        self.dense = init_device_mesh(device_type, self.degrees.of(DENSE), mesh_dim_names=DENSE)

    @cached_property
    def expert(self) -> DeviceMesh:
        """The mesh that experts are cut over."""
        return init_device_mesh(self.device_type, self.degrees.of(EXPERT), mesh_dim_names=EXPERT)

    @cached_property
    def sequence(self) -> DeviceMesh:
        """The mesh that sequences are cut over."""
        sizes = self.degrees.of(SEQUENCE)
        return init_device_mesh(self.device_type, sizes, mesh_dim_names=SEQUENCE)

    @cached_property
    def batch(self) -> DeviceMesh:
        """Every rank that sees other tokens, in one dim."""
        return self.dense["dp_replicate", "fsdp"]._flatten("batch")

    @cached_property
    def stage(self) -> DeviceMesh:
        """Every rank that holds some of the same layers, in one dim."""
        return self.dense["dp_replicate", "fsdp", "tp"]._flatten("stage")

    def dim(self, axis: str) -> DeviceMesh:
        """The one-dimensional mesh of an axis, "fsdp", "batch" and "stage" among them."""
        if axis in ("batch", "stage"):
            return self.batch if axis == "batch" else self.stage
        if axis in DENSE:
            return self.dense[axis]
        return self.expert[axis] if axis in EXPERT else self.sequence[axis]

    def size(self, axis: str) -> int:
        """Ranks along an axis."""
        size: int = getattr(self.degrees, axis)
        return size

    def rank(self, axis: str) -> int:
        """This rank's place along an axis."""
        if axis in ("dp_shard", "cp"):  # no group is made for what arithmetic says
            dp_shard, cp = divmod(self.rank("fsdp"), self.degrees.cp)
            return cp if axis == "cp" else dp_shard
        place: int = self.dim(axis).get_local_rank()
        return place

    def group(self, axis: str) -> ProcessGroup:
        """The process group along an axis."""
        return self.dim(axis).get_group()

    @property
    def dp_size(self) -> int:
        """Replicas that read different rows."""
        return self.degrees.dp_replicate * self.degrees.dp_shard

    @property
    def dp_rank(self) -> int:
        """This rank's place among them."""
        return self.rank("dp_replicate") * self.degrees.dp_shard + self.rank("dp_shard")
