"""A trace of a run on CPUs with the host's own work as device events, so that one account serves.

Kineto records no device there: operators on the threads that train are the kernels, what gloo's
threads do is communication, and a stretch in which neither works is the host's. Each operator is
launched where it begins. What runs inside data loading, saving or evaluation belongs to those.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.diagnose.host.messages import messages_of
from meshwright.diagnose.split.operators import TRANSPORT
from meshwright.diagnose.split.pieces import Pieces, innermost, outside
from meshwright.diagnose.split.work import names_like
from meshwright.diagnose.trace.columns import Calls, Device, DeviceEvents, Host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Trace

TRAINING = re.compile(r"^(ProfilerStep#|autograd::engine)")  # a backward pass may have its own
APART = re.compile(r"^(enumerate\(DataLoader\)|checkpoint#|evaluation#)")  # own all inside them
_OTHERS = ("c10d::", "_c10d_functional::", "c10d_functional::", "autograd::", "torch::")
_HOST, _RUN = 0, "run on the host"


def computes_on_host(trace: Trace) -> bool:
    """Whether the trace is of a run that computed on CPUs: it says so itself, and has no device."""
    own = trace.meta.own or {}
    return not len(trace.device) and own.get("computes_on") == "cpu"


def as_device(trace: Trace) -> Trace:
    """The trace with operators of the training threads and transfers as device events.

    Streams are numbers of threads; the correlation of an event is its number, as is that of the
    call at its start. Nothing else of the trace changes.
    """
    ops = trace.operators
    apart = _spans(trace, APART)
    work = outside(_compute(trace), apart)
    sent = outside(_rows(trace, _named(trace, TRANSPORT)), apart)
    rows = np.concatenate([work.row, sent.row])
    start = np.concatenate([work.start_ns, sent.start_ns])
    end = np.concatenate([work.end_ns, sent.end_ns])
    moved = np.concatenate([np.zeros(len(work.row), bool), np.ones(len(sent.row), bool)])
    order = np.lexsort((-end, start))
    rows, start, end, moved = rows[order], start[order], end[order], moved[order]
    told, message = messages_of(trace, rows[moved])
    messages = np.full(len(rows), -1, dtype=np.int32)
    messages[moved] = message
    numbers = np.arange(len(rows), dtype=np.int64)
    device = DeviceEvents(
        start_ns=start,
        end_ns=end,
        name=ops.name[rows],
        kind=np.full(len(rows), Device.KERNEL, dtype=np.int8),
        device=np.full(len(rows), _HOST, dtype=np.int32),
        stream=ops.thread[rows],
        correlation=numbers,
        external=ops.external[rows],
        message=messages,
        seq=np.full(len(rows), -1, dtype=np.int64),
        bytes=np.full(len(rows), -1, dtype=np.int64),
    )
    calls = _calls(start, numbers, name=len(trace.names), external=ops.external[rows])
    return replace(trace, device=device, calls=calls, names=(*trace.names, _RUN), messages=told)


def _calls(start: Any, numbers: Any, *, name: int, external: Any) -> Calls:
    """A launch at the start of every event, of no length."""
    return Calls(
        start_ns=start,
        end_ns=start,
        name=np.full(len(start), name, dtype=np.int32),
        thread=np.zeros(len(start), dtype=np.int32),
        correlation=numbers,
        external=external,
    )


def _compute(trace: Trace) -> Pieces:
    """What operators themselves did on the threads that train, operators inside them taken out."""
    ops = trace.operators
    threads = np.unique(ops.thread[_named(trace, TRAINING)])
    mine = np.isin(ops.thread, threads) & (ops.kind != Host.PYTHON)
    pieces = innermost(ops, np.flatnonzero(mine))
    works = (ops.kind == Host.OPERATOR) & _computing(trace)[ops.name]
    return pieces.where(works[pieces.row])


def _computing(trace: Trace) -> NDArray[np.bool_]:
    """Which names are those of operators that compute: nodes of autograd's graph do not."""
    names = ("::" in name and not name.startswith(_OTHERS) for name in trace.names)
    return np.fromiter(names, bool, len(trace.names))


def _rows(trace: Trace, mask: NDArray[np.bool_]) -> Pieces:
    """Whole operators as pieces."""
    rows = np.flatnonzero(mask)
    ops = trace.operators
    return Pieces(row=rows, start_ns=ops.start_ns[rows], end_ns=ops.end_ns[rows])


def _spans(trace: Trace, pattern: re.Pattern[str]) -> Any:
    """Starts and ends of what bears these names, one [n, 2] array, in order and disjoint."""
    rows = np.flatnonzero(_named(trace, pattern))
    spans: list[list[int]] = []
    ops = trace.operators
    for first, last in zip(ops.start_ns[rows].tolist(), ops.end_ns[rows].tolist(), strict=True):
        if spans and first <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], last)
        else:
            spans.append([first, last])
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def _named(trace: Trace, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Which host events have such a name."""
    return names_like(trace.names, trace.operators.name, pattern)
