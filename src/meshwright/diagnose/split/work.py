"""The device's work of a trace: its kind, what launched it, and when any of a kind ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.split.classes import CLASSES, COMM, KINDS, TELLING, classed
from meshwright.diagnose.split.intervals import Spans, intersect, merged, union, within
from meshwright.diagnose.trace.columns import Device

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.diagnose.trace.columns import Bytes, Calls, Longs, Trace

COMPUTE, COMMUNICATION, MEMORY = 0, 1, 2  # kinds of work, in the order in which they win


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Device events of a trace, one row each, and the moments of each kind of work.

    `kind` is COMPUTE, COMMUNICATION or MEMORY, `group` a number into `classes.CLASSES` and `finer`
    one into `classes.KINDS`. `call` is the row of the call that launched the event in
    `Trace.calls` (-1: not in the trace) and `launch_ns` its start. Compute wins over communication,
    and both win over memory.
    """

    kind: Bytes
    group: Bytes
    finer: Bytes
    call: Longs
    launch_ns: Longs
    compute: Spans
    communication: Spans
    memory: Spans
    overlap: Spans  # communication with compute beside it
    active: Spans  # compute or communication
    busy: Spans
    begins: Longs  # moments at which idle time ends: work begins, be it of no length


def work_of(trace: Trace) -> Work:
    """The device's work of a trace."""
    device = trace.device
    group, finer = _classified(trace)
    kind = np.where(group == COMM, COMMUNICATION, COMPUTE).astype(np.int8)
    kind[device.kind != Device.KERNEL] = MEMORY
    compute, communication, memory = (_when(trace, kind == k) for k in range(3))
    active = merged(compute, communication)
    busy = merged(active, memory)
    call = launching_calls(trace.calls, device.correlation)
    launch = trace.calls.start_ns[call] if len(trace.calls) else np.zeros(len(call), dtype=np.int64)
    return Work(
        kind=kind,
        group=group,
        finer=finer,
        call=call,
        launch_ns=launch,
        compute=compute,
        communication=communication,
        memory=memory,
        overlap=intersect(compute, communication),
        active=active,
        busy=busy,
        begins=_begins(trace, busy),
    )


def _when(trace: Trace, chosen: NDArray[np.bool_]) -> Spans:
    return union(trace.device.start_ns[chosen], trace.device.end_ns[chosen])


def _begins(trace: Trace, busy: Spans) -> Longs:
    """Starts of work; kernels that a clock of microseconds rounds to nothing end idle time too."""
    device = trace.device
    empty = device.start_ns[device.end_ns <= device.start_ns]
    if len(empty) == 0:
        return busy.start
    apart = empty[within(busy, empty, empty + 1) == 0]
    return np.asarray(np.unique(np.concatenate((busy.start, apart))), dtype=np.int64)


def _classified(trace: Trace) -> tuple[Bytes, Bytes]:
    """Class and finer kind of every device event; what carries a message is communication."""
    device = trace.device
    classes = np.zeros(max(len(trace.names), 1), dtype=np.int8)
    kinds = np.zeros(max(len(trace.names), 1), dtype=np.int8)
    for name in numbers_in(device.name, len(trace.names)):
        told, finer = classed(trace.names[name])
        classes[name], kinds[name] = CLASSES.index(told), KINDS.index(finer)
    group, finer_kind = classes[device.name], kinds[device.name]
    for column, words in ((group, CLASSES), (finer_kind, KINDS)):
        column[(device.message >= 0) | (group == COMM)] = words.index("comm")
        column[device.kind != Device.KERNEL] = words.index("memory")
    return group, finer_kind


def launching_calls(calls: Calls, correlation: Longs) -> Longs:
    """Row of the call with each correlation number, -1 where the trace has none.

    Of several calls with one number (a runtime call and the driver's inside it) the outermost.
    """
    row = np.flatnonzero(calls.correlation > 0)[::-1]  # the first of equal numbers is written last
    return joined(calls.correlation[row], row, correlation)


def joined(keys: Longs, values: Longs, wanted: Longs) -> Longs:
    """The value of each wanted key, -1 where there is none; the last of equal keys holds."""
    if len(keys) == 0 or len(wanted) == 0:
        return np.full(len(wanted), -1, dtype=np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low < 8 * (len(keys) + len(wanted)) + 1024:
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[keys - low] = values
        inside = (wanted >= low) & (wanted <= high)
        return np.where(inside, table[np.where(inside, wanted - low, 0)], -1)
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys[order], wanted, "right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (keys[found] == wanted), values[found], -1)


def names_like(
    names: Sequence[str], used: NDArray[np.int32], pattern: re.Pattern[str]
) -> NDArray[np.bool_]:
    """Which rows of a column of names match a pattern; each distinct name is asked once."""
    told = np.zeros(max(len(names), 1), dtype=np.bool_)
    for name in numbers_in(used, len(names)):
        told[name] = pattern.search(names[name][:TELLING]) is not None
    return told[used]


def numbers_in(column: NDArray[np.int32], most: int) -> list[int]:
    """The distinct numbers of a column, each less than `most`."""
    held = np.zeros(most, dtype=np.bool_)
    held[column] = True
    return [int(number) for number in np.flatnonzero(held)]
