"""Traces as columns, from rows in microseconds: what a reader would make of a small file."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.diagnose.trace.columns import (
    Allocations,
    Calls,
    Device,
    DeviceEvents,
    Host,
    Message,
    Meta,
    Operators,
    Shape,
    Trace,
)

LAUNCH = "cudaLaunchKernel"


class Rows:
    """Collects rows; `trace()` sorts them as the columns demand."""

    def __init__(self, **meta: Any) -> None:
        self.names: dict[str, int] = {}
        self.messages: dict[Message, int] = {}
        self.shapes: list[Shape] = []
        self.device: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.operators: list[dict[str, Any]] = []
        self.allocations: list[tuple[float, int, int, int]] = []
        self.meta = meta
        self.correlation = 0

    def number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def work(
        self,
        start: float,
        end: float,
        *,
        name: str = "void at::native::add_kernel()",
        kind: Device = Device.KERNEL,
        correlation: int = -1,
        external: int = -1,
        stream: int = 7,
        device: int = 0,
        message: Message | None = None,
        seq: int = -1,
        size: int = -1,
    ) -> None:
        told = -1 if message is None else self.messages.setdefault(message, len(self.messages))
        self.device.append(
            {
                "start_ns": round(start * 1000),
                "end_ns": round(end * 1000),
                "name": self.number(name),
                "kind": kind,
                "device": device,
                "stream": stream,
                "correlation": correlation,
                "external": external,
                "message": told,
                "seq": seq,
                "bytes": size,
            }
        )

    def call(
        self,
        start: float,
        end: float,
        *,
        name: str = LAUNCH,
        correlation: int = -1,
        thread: int = 0,
    ) -> None:
        self.calls.append(
            {
                "start_ns": round(start * 1000),
                "end_ns": round(end * 1000),
                "name": self.number(name),
                "thread": thread,
                "correlation": correlation,
                "external": -1,
            }
        )

    def launched(self, at: float, start: float, end: float, **work: Any) -> None:
        """A launch that takes half a microsecond, and what it launched."""
        self.correlation += 1
        self.call(at, at + 0.5, correlation=self.correlation)
        self.work(start, end, correlation=self.correlation, **work)

    def host(
        self,
        start: float,
        end: float,
        *,
        name: str,
        kind: Host = Host.OPERATOR,
        thread: int = 0,
        external: int = -1,
        message: Message | None = None,
        dims: tuple[Any, ...] = (),
    ) -> None:
        told = -1 if message is None else self.messages.setdefault(message, len(self.messages))
        if dims:
            types = ("c10::BFloat16",) * len(dims)
            self.shapes.append(Shape(dims=dims, types=types))
        self.operators.append(
            {
                "start_ns": round(start * 1000),
                "end_ns": round(end * 1000),
                "name": self.number(name),
                "kind": kind,
                "thread": thread,
                "external": external,
                "message": told,
                "seq": -1,
                "shape": len(self.shapes) - 1 if dims else -1,
            }
        )

    def mark(self, start: float, end: float, name: str) -> None:
        self.host(start, end, name=name, kind=Host.ANNOTATION)

    def trace(self, *, origin_ns: int = 10**12) -> Trace:
        at = sorted(self.allocations)
        return Trace(
            file="made.json",
            file_bytes=0,
            json_bytes=0,
            events=len(self.device) + len(self.calls) + len(self.operators),
            bad_events=0,
            origin_ns=origin_ns,
            names=tuple(self.names),
            messages=tuple(self.messages),
            shapes=tuple(self.shapes),
            device=_table(DeviceEvents, self.device),
            calls=_table(Calls, self.calls),
            operators=_table(Operators, self.operators),
            allocations=Allocations(
                at_ns=np.array([round(a[0] * 1000) for a in at], dtype=np.int64),
                bytes=np.array([a[1] for a in at], dtype=np.int64),
                allocated_bytes=np.array([a[2] for a in at], dtype=np.int64),
                reserved_bytes=np.array([a[3] for a in at], dtype=np.int64),
                device=np.zeros(len(at), dtype=np.int32),
            ),
            meta=Meta(**self.meta),
        )


def _table(kind: Any, rows: list[dict[str, Any]]) -> Any:
    ordered = sorted(rows, key=lambda row: (row["start_ns"], -row["end_ns"]))
    columns = {}
    for name in kind.__dataclass_fields__:
        dtype = "int8" if name == "kind" else "int64" if name in LONG else "int32"
        columns[name] = np.array([row[name] for row in ordered], dtype=dtype)
    return kind(**columns)


LONG = ("start_ns", "end_ns", "correlation", "external", "seq", "bytes")
