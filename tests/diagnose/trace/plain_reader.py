"""A trace file as a `Trace`, the plain way: the reference for the reader that streams."""

from __future__ import annotations

import gzip
import math
from collections import defaultdict
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from meshwright.diagnose.trace.columns import (
    Allocations,
    Calls,
    Device,
    DeviceEvents,
    Group,
    Host,
    Message,
    Meta,
    Operators,
    Shape,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICE = {
    "kernel": Device.KERNEL,
    "Kernel": Device.KERNEL,
    "gpu_memcpy": Device.COPY,
    "Memcpy": Device.COPY,
    "gpu_memset": Device.SET,
    "Memset": Device.SET,
}
CALLS = ("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "mtia_ccp_events")
HOST = {
    "cpu_op": Host.OPERATOR,
    "Operator": Host.OPERATOR,
    "user_annotation": Host.ANNOTATION,
    "python_function": Host.PYTHON,
}


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that an analysis reads."""

    external: Any = msgspec.field(name="External id", default=-1)
    external_old: Any = msgspec.field(name="external id", default=-1)
    correlation: Any = -1
    stream: Any = -1
    device: Any = -1
    bytes: Any = msgspec.field(name="bytes", default=-1)
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default="")
    description: Any = msgspec.field(name="Process Group Description", default="")
    ranks: Any = msgspec.field(name="Process Group Ranks", default="")
    group_size: Any = msgspec.field(name="Group size", default=-1)
    dtype: Any = msgspec.field(name="dtype", default="")
    in_elements: Any = msgspec.field(name="In msg nelems", default=-1)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=-1)
    seq: Any = msgspec.field(name="Seq", default=-1)
    source_rank: Any = msgspec.field(name="Src Rank", default=-1)
    target_rank: Any = msgspec.field(name="Dst Rank", default=-1)
    dims: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    gained: Any = msgspec.field(name="Bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=-1)
    reserved: Any = msgspec.field(name="Total Reserved", default=-1)
    device_id: Any = msgspec.field(name="Device Id", default=-1)
    device_type: Any = msgspec.field(name="Device Type", default=-1)


NONE = Arguments()


class Event(msgspec.Struct, gc=False):
    """One event."""

    ph: str = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = 0
    tid: Any = 0
    ts: Any = 0
    dur: Any = 0
    args: Arguments | None = None


class _Document(msgspec.Struct):
    traceEvents: list[Event]  # noqa: N815 - the name in the file
    deviceProperties: Any = ()  # noqa: N815
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: int = 0  # noqa: N815
    record_shapes: int = 0
    with_stack: int = 0
    profile_memory: int = 0
    host_name: str = ""
    meshwright: Any = None


class _Numbers(defaultdict[Any, int]):
    """Numbers things in the order of their appearance."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


def read_trace(path: str | Path) -> Trace:
    """The trace in a .json or .json.gz file."""
    raw = Path(path).read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    decoder = msgspec.json.Decoder(_Document, strict=False, float_hook=Decimal)
    document = decoder.decode(text)
    events = document.traceEvents
    timed = [e for e in events if e.ph == "X"]
    origin = min((math.floor(e.ts) for e in timed), default=0) * 1000
    names, threads, messages, shapes = _Numbers(), _Numbers(), _Numbers(), _Numbers()
    table = _Table(origin, names, threads, messages, shapes)
    return Trace(
        file=str(path),
        file_bytes=len(raw),
        json_bytes=len(text),
        events=len(events),
        bad_events=0,
        origin_ns=origin,
        device=table.device([e for e in timed if e.cat in DEVICE]),
        calls=table.calls([e for e in timed if e.cat in CALLS]),
        operators=table.operators([e for e in timed if e.cat in HOST]),
        allocations=table.allocations([e for e in events if e.name == "[memory]"]),
        names=tuple(names),
        messages=tuple(messages),
        shapes=tuple(Shape(dims=_tuples(d), types=t) for d, t in shapes),
        meta=_meta(document),
    )


class _Table:
    def __init__(self, origin: int, *numbers: _Numbers) -> None:
        self.origin = origin
        self.names, self.threads, self.messages, self.shapes = numbers

    def times(self, events: list[Event]) -> tuple[Any, Any, Any]:
        start = [round(Decimal(e.ts) * 1000) - self.origin for e in events]
        length = [max(round(Decimal(e.dur) * 1000), 0) for e in events]
        first = np.array(start, dtype=np.int64)
        last = first + np.array(length, dtype=np.int64)
        return first, last, np.lexsort((-last, first))

    def device(self, events: list[Event]) -> DeviceEvents:
        first, last, order = self.times(events)
        args = [e.args or NONE for e in events]
        return DeviceEvents(
            start_ns=first[order],
            end_ns=last[order],
            name=_ints((self.names[e.name] for e in events), order),
            kind=_ints((DEVICE[e.cat] for e in events), order).astype(np.int8),
            device=_ints((_number(a.device) for a in args), order),
            stream=_ints((_number(a.stream) for a in args), order),
            correlation=_longs(map(_number, _each("correlation", args)), order),
            external=_longs((_external(a) for a in args), order),
            message=_ints(map(self.message, args), order),
            seq=_longs(map(_number, _each("seq", args)), order),
            bytes=_longs(map(_number, _each("bytes", args)), order),
        )

    def calls(self, events: list[Event]) -> Calls:
        first, last, order = self.times(events)
        args = [e.args or NONE for e in events]
        return Calls(
            start_ns=first[order],
            end_ns=last[order],
            name=_ints((self.names[e.name] for e in events), order),
            thread=_ints((self.threads[e.pid, str(e.tid)] for e in events), order),
            correlation=_longs(map(_number, _each("correlation", args)), order),
            external=_longs((_external(a) for a in args), order),
        )

    def operators(self, events: list[Event]) -> Operators:
        first, last, order = self.times(events)
        args = [e.args or NONE for e in events]
        return Operators(
            start_ns=first[order],
            end_ns=last[order],
            name=_ints((self.names[e.name] for e in events), order),
            kind=_ints((_host(e) for e in events), order).astype(np.int8),
            thread=_ints((self.threads[e.pid, str(e.tid)] for e in events), order),
            external=_longs((_external(a) for a in args), order),
            message=_ints(map(self.message, args), order),
            seq=_longs(map(_number, _each("seq", args)), order),
            shape=_ints(map(self.shape, args), order),
        )

    def allocations(self, events: list[Event]) -> Allocations:
        args = [e.args or NONE for e in events]
        at = np.array([round(Decimal(e.ts) * 1000) - self.origin for e in events], dtype=np.int64)
        order = np.argsort(at, kind="stable")
        return Allocations(
            at_ns=at[order],
            bytes=_longs(map(_number, _each("gained", args)), order),
            allocated_bytes=_longs(map(_number, _each("allocated", args)), order),
            reserved_bytes=_longs(map(_number, _each("reserved", args)), order),
            device=_ints((_number(a.device_id) if a.device_type else -1 for a in args), order),
        )

    def message(self, a: Any) -> int:
        if a.collective is None:
            return -1
        return self.messages[
            Message(
                collective=a.collective,
                group=str(a.group),
                description=a.description,
                ranks=str(a.ranks),
                group_size=_number(a.group_size),
                dtype=a.dtype,
                in_elements=_number(a.in_elements),
                out_elements=_number(a.out_elements),
                source_rank=_number(a.source_rank),
                target_rank=_number(a.target_rank),
            )
        ]

    def shape(self, a: Any) -> int:
        if not a.dims:
            return -1
        return self.shapes[repr(a.dims), tuple(a.types or ())]


def _host(event: Event) -> Host:
    if event.cat == "Operator" and ("#" in event.name):
        return Host.ANNOTATION
    return HOST[event.cat]


def _tuples(text: str) -> tuple[Any, ...]:
    dims: list[Any] = msgspec.json.decode(text)
    return tuple(map(_frozen, dims))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float | Decimal | str) and str(value) != "" else -1


def _external(a: Any) -> int:
    return _number(a.external if a.external != -1 else a.external_old)


def _each(name: str, args: list[Any]) -> Iterable[Any]:
    return map(attrgetter(name), args)


def _ints(values: Iterable[int], order: Any) -> Any:
    return np.fromiter(values, dtype=np.int32, count=len(order))[order]


def _longs(values: Iterable[int], order: Any) -> Any:
    return np.fromiter(values, dtype=np.int64, count=len(order))[order]


def _meta(document: _Document) -> Meta:
    info = document.distributedInfo or {}
    devices = document.deviceProperties or ()
    gpus = tuple(str(d.get("name", "")) for d in devices)
    return Meta(
        rank=info.get("rank"),
        world_size=info.get("world_size"),
        backend=info.get("backend"),
        nccl_version=info.get("nccl_version"),
        gpu=gpus[0] if gpus else None,
        gpus=gpus,
        groups=tuple(map(_group, info.get("pg_config") or ())),
        host=document.host_name,
        base_ns=document.baseTimeNanoseconds,
        record_shapes=bool(document.record_shapes),
        with_stack=bool(document.with_stack),
        profile_memory=bool(document.profile_memory),
        own=document.meshwright,
    )


def _group(entry: dict[str, Any]) -> Group:
    ranks = entry.get("ranks") or ()
    if isinstance(ranks, str):
        ranks = [int(r) for r in ranks.strip("[]").split(",") if r.strip().isdigit()]
    return Group(
        name=str(entry.get("pg_name", "")),
        description=str(entry.get("pg_desc", "")),
        ranks=tuple(ranks),
        size=int(entry.get("pg_size", len(ranks))),
    )


__all__ = ["read_trace"]
