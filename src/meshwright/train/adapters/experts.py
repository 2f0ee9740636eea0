"""transformers' fused experts (5.24): which modules they are, how weights lie, their products.

`use_experts_implementation` (transformers/integrations/moe.py) marks every class of routed experts
with the flags read here. Weights are three-dimensional, one slice an expert: `gate_up_proj` and
`down_proj`, [expert, out, in] unless `is_transposed`; gate and up lie one after the other
(`is_concatenated`) or take turns (gpt_oss).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from transformers.integrations import moe  # noqa: F401 - registers grouped_mm_fallback

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed.tensor.placement_types import Placement

FLAGS = ("has_gate", "has_bias", "is_transposed", "is_concatenated", "num_experts")
ALIGNMENT_BYTES = 16  # of every row, for torch's grouped product


@dataclass(frozen=True, kw_only=True)
class Weights:
    """This rank's weights of the routed experts of a layer, plain tensors.

    `up` is [experts, in, out], `down` [experts, in, out]; biases [experts, out] or None.
    """

    up: Tensor
    down: Tensor
    up_bias: Tensor | None
    down_bias: Tensor | None


def is_experts(module: nn.Module) -> bool:
    """Whether a module holds the fused routed experts of a layer."""
    return all(hasattr(module, flag) for flag in FLAGS) and hasattr(module, "down_proj")


def up_name(module: Any) -> str:
    """The name of the weight before the activation."""
    return "gate_up_proj" if module.has_gate else "up_proj"


def check(module: Any) -> None:
    """MeshwrightError for experts whose forward does more than two products and a gate."""
    if getattr(module, "has_post_expert_norm", False):
        raise MeshwrightError(
            f"{type(module).__name__} normalizes the output of every expert, which meshwright does "
            "not cut over ranks",
            hint="choose a model family that `meshwright show models` lists",
        )


def width_placements(module: Any) -> dict[str, Placement]:
    """How each parameter of the experts is cut along the expert width, by name.

    Gate and up that lie one after the other are cut apart first (as transformers'
    PackedColwiseParallel does), so that every rank has the same part of both.
    """
    last = 1 if module.is_transposed else 2
    packed = module.has_gate and module.is_concatenated
    up_dim = 3 - last
    up = up_name(module)
    return {
        up: _StridedShard(up_dim, split_factor=2) if packed else Shard(up_dim),
        "down_proj": Shard(last),
        f"{up}_bias": _StridedShard(1, split_factor=2) if packed else Shard(1),
        "down_proj_bias": Replicate(),
    }


def weights_of(module: Any) -> Weights:
    """The local weights, seen as [experts, in, out]; gradients keep each parameter's placements."""
    up = up_name(module)

    def seen(name: str) -> Tensor:
        weight = _local(getattr(module, name))
        return weight if module.is_transposed else weight.transpose(-2, -1)

    def bias(name: str) -> Tensor | None:
        return _local(getattr(module, name)) if module.has_bias else None

    return Weights(
        up=seen(up),
        down=seen("down_proj"),
        up_bias=bias(f"{up}_bias"),
        down_bias=bias("down_proj_bias"),
    )


def activated(module: Any, inner: Tensor) -> Tensor:
    """The module's own gate or activation on [rows, width]: what the down projection reads."""
    result: Tensor = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
    return result


def product(rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Rows [n, in], sorted by expert, times each one's weight [experts, in, out]: [n, out].

    `ends` [experts] int32 is where the rows of each expert end. torch's grouped kernel where it
    takes the format, the width and at least one row; else transformers' loop over the experts.
    """
    if _grouped_takes(rows, weight):
        result: Tensor = torch.nn.functional.grouped_mm(rows, weight, offs=ends)
    else:
        result = torch.ops.transformers.grouped_mm_fallback(rows, weight, ends)
    return result


def _grouped_takes(rows: Tensor, weight: Tensor) -> bool:
    """Whether torch's grouped product can be used (and its backward).

    In float16 and float32 it runs, but neither on fake tensors nor in torch.compile.
    """
    widths = (rows.shape[1], weight.shape[2])
    aligned = all(w * rows.element_size() % ALIGNMENT_BYTES == 0 for w in widths)
    is_bfloat16 = rows.dtype is weight.dtype is torch.bfloat16
    return is_bfloat16 and aligned and rows.shape[0] > 0


def _local(parameter: Any) -> Tensor:
    part: Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return part
