"""What gloo's threads carry: sizes and types come from the operators that asked for it.

A transfer of gloo says its kind alone ("gloo:all_reduce"). Operators of torch.distributed, on the
threads that train, have the tensors; each is answered by one transfer of its kind, first come first
served (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, runLoop).
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.split.work import names_like
from meshwright.diagnose.trace.columns import Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Shape, Trace

_DTYPES = {
    "float": "Float",
    "double": "Double",
    "c10::BFloat16": "BFloat16",
    "c10::Half": "Half",
    "long": "Long",
    "long int": "Long",
    "int": "Int",
    "unsigned char": "Byte",
    "signed char": "Char",
    "bool": "Bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How an operator is served: the transfer's name, PyTorch's word, inputs that go in and out."""

    transfer: str
    collective: str
    into: int  # number of the input that is sent
    out: int  # of the one that is filled


_KINDS = {
    "c10d::allreduce_": _Kind(transfer="all_reduce", collective="allreduce", into=0, out=0),
    "c10d::_reduce_scatter_base_": _Kind(
        transfer="all_reduce", collective="_reduce_scatter_base", into=1, out=0
    ),
    "c10d::_allgather_base_": _Kind(
        transfer="all_gather", collective="_allgather_base", into=1, out=0
    ),
    "c10d::allgather_": _Kind(transfer="all_gather", collective="allgather", into=1, out=0),
    "c10d::broadcast_": _Kind(transfer="broadcast", collective="broadcast", into=0, out=0),
    "c10d::alltoall_base_": _Kind(transfer="all_to_all", collective="all_to_all", into=1, out=0),
    "c10d::send": _Kind(transfer="send", collective="send", into=0, out=0),
    "c10d::recv_": _Kind(transfer="recv", collective="recv", into=0, out=0),
    "_c10d_functional::all_reduce": _Kind(
        transfer="all_reduce", collective="allreduce", into=0, out=0
    ),
    "_c10d_functional::all_reduce_": _Kind(
        transfer="all_reduce", collective="allreduce", into=0, out=0
    ),
    "_c10d_functional::all_gather_into_tensor": _Kind(
        transfer="all_gather", collective="_allgather_base", into=0, out=-1
    ),
    "_c10d_functional::reduce_scatter_tensor": _Kind(
        transfer="all_reduce", collective="_reduce_scatter_base", into=0, out=-1
    ),
    "_c10d_functional::all_to_all_single": _Kind(
        transfer="all_to_all", collective="all_to_all", into=0, out=-1
    ),
}


_GLOO, _FSDP = re.compile(r"^gloo:"), re.compile(r"^FSDP::")
_ASKING = re.compile(r"^(c10d|_c10d_functional)::")


def messages_of(
    trace: Trace, rows: NDArray[np.int64]
) -> tuple[tuple[Message, ...], NDArray[np.int32]]:
    """Messages of the trace, and the number of that of each row of transfers; -1 unknown."""
    asked = _asked(trace)
    numbers: dict[Message, int] = {message: i for i, message in enumerate(trace.messages)}
    ops, served, shards = trace.operators, {}, _sharding(trace)
    for row in _rows(trace, _GLOO):
        name = trace.names[ops.name[row]].partition(":")[2]
        waiting = asked.get(name)
        if waiting and ops.start_ns[waiting[0]] <= ops.start_ns[row]:
            served[row] = waiting.pop(0)
    found = np.full(len(rows), -1, dtype=np.int32)
    for place, row in enumerate(rows.tolist()):
        if row in served:
            message = _message(trace, served[row], shards=shards)
            found[place] = numbers.setdefault(message, len(numbers))
    return tuple(numbers), found


def _asked(trace: Trace) -> dict[str, list[int]]:
    """Rows of operators that ask for a transfer, by its name, in order."""
    asked: dict[str, list[int]] = {}
    for row in _rows(trace, _ASKING):
        kind = _KINDS.get(trace.names[trace.operators.name[row]])
        if kind is not None:
            asked.setdefault(kind.transfer, []).append(row)
    return asked


def _rows(trace: Trace, pattern: re.Pattern[str]) -> list[int]:
    ops = trace.operators
    rows: list[int] = np.flatnonzero(names_like(trace.names, ops.name, pattern)).tolist()
    return rows


def _message(trace: Trace, row: int, *, shards: list[int]) -> Message:
    """What the operator in this row asked for; `shards` are rows of FSDP's marks."""
    ops = trace.operators
    kind = _KINDS[trace.names[ops.name[row]]]
    shape = trace.shapes[ops.shape[row]] if ops.shape[row] >= 0 else None
    size = trace.meta.world_size or -1
    into, out = _elements(shape, kind.into), _elements(shape, kind.out)
    if kind.out < 0 and into >= 0 and size > 0 and "all_to_all" not in kind.collective:
        out = into * size if "gather" in kind.collective else into // size
    return Message(
        collective=kind.collective,
        description="fsdp" if _is_in(trace, row, shards) else "",
        group_size=size,
        dtype=_dtype(shape, max(kind.into, 0)),
        in_elements=into,
        out_elements=into if kind.out < 0 and out < 0 else out,
    )


def _sharding(trace: Trace) -> list[int]:
    """Rows of the marks that FSDP2 makes around its collectives."""
    return _rows(trace, _FSDP)


def _is_in(trace: Trace, row: int, marks: list[int]) -> bool:
    """Whether an operator begins inside one of these."""
    ops, at = trace.operators, trace.operators.start_ns[row]
    return bool(np.any((ops.start_ns[marks] <= at) & (ops.end_ns[marks] >= at)))


def _elements(shape: Shape | None, place: int) -> int:
    """Elements of one input, of all tensors of a list; -1 unknown."""
    if shape is None or not 0 <= place < len(shape.dims):
        return -1
    return _count(shape.dims[place])


def _count(dims: Any) -> int:
    if not isinstance(dims, tuple):
        return -1
    if dims and all(isinstance(d, tuple) for d in dims):
        return sum(_count(d) for d in dims)
    return prod(dims) if all(isinstance(d, int) for d in dims) else -1


def _dtype(shape: Shape | None, place: int) -> str:
    if shape is None or place >= len(shape.types):
        return ""
    return _DTYPES.get(shape.types[place], "")
