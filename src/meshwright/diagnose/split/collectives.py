"""Collectives of a rank by kind, group, type and size, with the rate on the bus."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.diagnose.rank import Collective
from meshwright.diagnose.split.intervals import subtract, total, union
from meshwright.diagnose.split.work import COMMUNICATION

if TYPE_CHECKING:
    from meshwright.diagnose.split.work import Work
    from meshwright.diagnose.trace.columns import Longs, Message, Trace

    Kind = tuple[Message | None, str]  # and the name of its kernel

BY_KERNEL = "kernel:"  # before the name of a collective that only its kernel tells
MOST = 300  # kinds that are told apart
MOST_ELEMENTS = 2**48  # of one message: more is no size
ELEMENT_BYTES = {  # of PyTorch's scalar types, as collectives print them
    "byte": 1,
    "char": 1,
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "signed char": 1,
    "unsigned char": 1,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "short": 2,
    "int16": 2,
    "uint16": 2,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "int": 4,
    "int32": 4,
    "uint32": 4,
    "float": 4,
    "float32": 4,
    "long": 8,
    "int64": 8,
    "uint64": 8,
    "double": 8,
    "float64": 8,
    "complexfloat": 8,
    "complexdouble": 16,
}


def collectives_of(trace: Trace, work: Work) -> tuple[Collective, ...]:
    """Collectives of a rank, alike ones together, those that take most time first.

    Where there are more than `MOST` kinds (sizes that change with every call), the sizes of those
    that take least time are told together.
    """
    rows = np.flatnonzero(work.kind == COMMUNICATION)
    if len(rows) == 0:
        return ()
    start, end = trace.device.start_ns[rows], trace.device.end_ns[rows]
    kinds, of = _kinds(trace, rows)
    order = np.argsort(of, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(of[order])) + 1)
    held = []
    for (told, kernel), mine in zip(kinds, groups, strict=True):
        alone = subtract(union(start[mine], end[mine]), work.compute)
        held.append(_collective(told, kernel, (end - start)[mine], total(alone)))
    return tuple(sorted(held, key=lambda c: -c.sum_us))


def _kinds(trace: Trace, rows: Longs) -> tuple[list[Kind], Longs]:
    """The kinds of collectives at these rows, and the number of its kind for each row."""
    message, name = trace.device.message[rows], trace.device.name[rows]
    alike = np.where(message >= 0, message.astype(np.int64), -1 - name.astype(np.int64))
    _, first, of = np.unique(alike, return_index=True, return_inverse=True)
    told = [
        (_apart_from_peers(trace.messages[m]) if m >= 0 else None, trace.names[n])
        for m, n in zip(message[first], name[first], strict=True)
    ]
    if len(told) > MOST:
        length = (trace.device.end_ns - trace.device.start_ns)[rows]
        longest = set(np.argsort(-np.bincount(of, length), kind="stable")[:MOST].tolist())
        told = [kind if n in longest else _of_any_size(kind) for n, kind in enumerate(told)]
    numbers: dict[Any, int] = {}
    kinds: list[Kind] = []
    place = []
    for kind in told:
        key = kind[0] if kind[0] is not None else kind[1]
        if numbers.setdefault(key, len(kinds)) == len(kinds):
            kinds.append(kind)
        place.append(numbers[key])
    return kinds, np.array(place, dtype=np.int64)[of]


def _apart_from_peers(message: Message) -> Message:
    """Sends of one size are alike, whoever they go to."""
    return replace(message, source_rank=-1, target_rank=-1)


def _of_any_size(kind: Kind) -> Kind:
    message, kernel = kind
    sizeless = message and replace(message, in_elements=-1, out_elements=-1)
    return sizeless, kernel


def _collective(told: Message | None, kernel: str, length: Longs, exposed: int) -> Collective:
    shortest, middle = int(length.min()), median(length.tolist())
    size = message_bytes(told) if told else None
    return Collective(
        collective=told.collective if told else BY_KERNEL + kernel.split("(")[0],
        pg_name=told.group if told else "",
        pg_desc=told.description if told else "",
        pg_ranks=told.ranks if told else "",
        group_size=told.group_size if told else -1,
        dtype=told.dtype if told else "",
        in_nelems=told.in_elements if told else -1,
        out_nelems=told.out_elements if told else -1,
        count=len(length),
        sum_us=int(length.sum()) / 1000,
        min_us=shortest / 1000,
        median_us=middle / 1000,
        exposed_us=exposed / 1000,
        bytes=size,
        busbw_GBps_at_median=bus_rate(told, middle),
        busbw_GBps_at_min=bus_rate(told, shortest),
        kernel=kernel[:160],
    )


def label_of(collective: str, kernel: str) -> str:
    """The name of a collective in words: its own, else the function's that its kernel is of.

    A kernel's return type, namespaces, template and arguments are no part of that.
    """
    if not collective.startswith(BY_KERNEL):
        return collective
    whole = kernel or collective.removeprefix(BY_KERNEL)
    bare = whole.replace("(anonymous namespace)::", "").removeprefix("void ")
    words = re.split(r"[<(]", bare, maxsplit=1)[0].split("::")[-1].split()
    return words[-1] if words else collective.removeprefix(BY_KERNEL).strip()


def message_bytes(message: Message) -> int | None:
    """Bytes of a collective by the convention of NCCL's tests; None where the trace cannot tell.

    That is the whole buffer: what comes out of a gather, what goes into anything else.
    """
    element = ELEMENT_BYTES.get(message.dtype.lower().removeprefix("torch.").removeprefix("c10::"))
    gathers = "gather" in message.collective.lower()
    elements = message.out_elements if gathers else message.in_elements
    if element is None or not 0 <= elements < MOST_ELEMENTS:
        return None
    return element * elements


def bus_factor(message: Message) -> float | None:
    """Bytes on each rank's link over bytes of the message (NCCL tests, PERFORMANCE.md)."""
    name, n = message.collective.lower().replace("_", ""), message.group_size
    if n < 1:
        return None
    if "allreduce" in name:
        return 2 * (n - 1) / n
    if any(part in name for part in ("gather", "scatter", "alltoall", "all2all")):
        return (n - 1) / n
    return 1.0


def bus_rate(message: Message | None, ns: float) -> float | None:
    """Rate on the bus in GB/s of a collective that took so many nanoseconds."""
    size, factor = (message_bytes(message), bus_factor(message)) if message else (None, None)
    return size * factor / ns if size and factor is not None and ns > 0 else None
