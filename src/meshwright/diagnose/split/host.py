"""What the host did: who of it keeps the device waiting, by the names of its events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.split.intervals import Spans, subtract, total, union
from meshwright.diagnose.split.work import names_like
from meshwright.diagnose.trace.columns import Host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Calls, Operators, Trace

DATALOADER = re.compile(r"^enumerate\(DataLoader\)")
OPTIMIZER = re.compile(r"^Optimizer\.step")
SYNC = re.compile(r"Synchronize$")
MALLOC = re.compile(
    r"^(cuda|hip|mu)(Malloc|Free)|^(cu|hip)Mem(Alloc|Free|Create|Map|Unmap|Release|SetAccess)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """Host events of one sort: how many, and the moments of any of them."""

    count: int
    spans: Spans


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """What the host did that the device may wait for."""

    dataloader: Doing
    sync_calls: Doing
    malloc_free: Doing
    optimizer: Doing


def host_of(trace: Trace) -> HostWork:
    """What the host did in a trace."""
    annotated = trace.operators.kind == Host.ANNOTATION
    return HostWork(
        dataloader=_annotations(trace, annotated, DATALOADER),
        sync_calls=_calls(trace, SYNC),
        malloc_free=_calls(trace, MALLOC),
        optimizer=_annotations(trace, annotated, OPTIMIZER),
    )


def _annotations(trace: Trace, annotated: NDArray[np.bool_], pattern: re.Pattern[str]) -> Doing:
    rows = np.flatnonzero(annotated)
    return _doing(
        trace.operators, rows[names_like(trace.names, trace.operators.name[rows], pattern)]
    )


def _calls(trace: Trace, pattern: re.Pattern[str]) -> Doing:
    return _doing(trace.calls, np.flatnonzero(names_like(trace.names, trace.calls.name, pattern)))


def _doing(events: Operators | Calls, rows: NDArray[np.int64]) -> Doing:
    return Doing(count=len(rows), spans=union(events.start_ns[rows], events.end_ns[rows]))


def host_record(host: HostWork, busy: Spans) -> dict[str, dict[str, float]]:
    """`Rank.cpu`: count and union of each sort that the trace has; `busy` is the device."""
    found = {
        name: {"count": doing.count, "union_us": total(doing.spans) / 1000}
        for name in ("dataloader", "sync_calls", "malloc_free", "optimizer")
        if (doing := getattr(host, name)).count
    }
    if "dataloader" in found:
        beside = total(subtract(host.dataloader.spans, busy)) / 1000
        found["dataloader"]["gpu_idle_during_us"] = beside
    return found
