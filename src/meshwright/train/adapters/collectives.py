"""Collectives as the dispatcher sees them: kind, process group, bytes (torch 2.13).

FSDP and pipelining call the `c10d` operators, DTensor and the functional collectives those of
`_c10d_functional`; the differentiable ones of `_c10d_functional_autograd` call the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.distributed_c10d import ProcessGroup, _resolve_process_group
from torch.utils._pytree import tree_leaves

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMESPACES = ("c10d", "_c10d_functional", "_dtensor")
KINDS: dict[str, tuple[str, str]] = {  # operator: (collective, the side that is the full tensor)
    "_allgather_base_": ("all_gather", "output"),
    "allgather_": ("all_gather", "output"),
    "allgather_coalesced_": ("all_gather", "output"),
    "allgather_into_tensor_coalesced_": ("all_gather", "output"),
    "all_gather_into_tensor": ("all_gather", "output"),
    "all_gather_into_tensor_out": ("all_gather", "output"),
    "all_gather_into_tensor_coalesced": ("all_gather", "output"),
    "_reduce_scatter_base_": ("reduce_scatter", "input"),
    "reduce_scatter_": ("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "input"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "reduce_scatter_tensor_out": ("reduce_scatter", "input"),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", "input"),
    "allreduce_": ("all_reduce", "input"),
    "allreduce_coalesced_": ("all_reduce", "input"),
    "all_reduce": ("all_reduce", "input"),
    "all_reduce_": ("all_reduce", "input"),
    "all_reduce_coalesced": ("all_reduce", "input"),
    "all_reduce_coalesced_": ("all_reduce", "input"),
    "alltoall_": ("all_to_all", "input"),
    "alltoall_base_": ("all_to_all", "input"),
    "all_to_all_single": ("all_to_all", "input"),
    "shard_dim_alltoall": ("all_to_all", "input"),
    "broadcast_": ("broadcast", "input"),
    "broadcast": ("broadcast", "input"),
    "reduce_": ("reduce", "input"),
    "gather_": ("gather", "output"),
    "scatter_": ("scatter", "input"),
    "send": ("send", "input"),
    "isend": ("send", "input"),
    "recv_": ("receive", "input"),
    "recv_any_source_": ("receive", "input"),
    "irecv": ("receive", "input"),
}
SILENT = {  # operators that move nothing of a step
    "wait_tensor",
    "_wrap_tensor_autograd",
    "barrier",
    "monitored_barrier_",
    "check_for_nan",
    "mesh_get_process_group",
}
_OUTPUTS = ("output", "outputs", "output_tensor", "output_tensors", "output_lists", "out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective call of this rank: kind, description and size of its group, bytes.

    Bytes are those of the full tensor: what an all-gather puts out, what a reduce-scatter,
    all-reduce or all-to-all takes in, the tensor sent or received.
    """

    kind: str
    group: str
    group_size: int
    size_bytes: int
    in_place: bool  # true for the `c10d` operators, which FSDP and pipelining use


def collective_of(
    operator: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any
) -> Call | None:
    """What a dispatched operator sends, None where it is no collective.

    Raises KeyError for a collective that `KINDS` does not know, rather than count it as nothing.
    """
    if operator.namespace not in NAMESPACES:
        return None
    name = operator._schema.name.rpartition("::")[2]
    if name in SILENT:
        return None
    kind, side = KINDS[name]
    in_place = operator.namespace == "c10d"
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, arguments, strict=False)), **named}
    group = _group(given)
    return Call(
        kind=kind,
        group=group.group_desc,
        group_size=group.size(),
        size_bytes=_bytes(_full(given, result, side=side, in_place=in_place)),
        in_place=in_place,
    )


def _full(named: Mapping[str, Any], result: Any, *, side: str, in_place: bool) -> Any:
    """The tensors of the side of a collective that is whole."""
    if side == "output":
        return [named[n] for n in _OUTPUTS if n in named] if in_place else result
    return [v for n, v in named.items() if n not in _OUTPUTS]


def _group(named: Mapping[str, Any]) -> Any:
    """The process group among an operator's arguments, which may be its name."""
    group = named.get("process_group", named.get("group_name"))
    if isinstance(group, str):
        return _resolve_process_group(group)
    return group if isinstance(group, ProcessGroup) else ProcessGroup.unbox(group)


def _bytes(tensors: Any) -> int:
    """Bytes of every tensor in a structure."""
    leaves = [leaf for leaf in tree_leaves(tensors) if isinstance(leaf, torch.Tensor)]
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves)
