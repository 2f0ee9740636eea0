"""Times as a program that holds them as doubles has them.

Files up to 2024 count from 1970. As a double in microseconds, then in nanoseconds, such a time is
right to 256 ns, and where clocks of a whole microsecond make two events touch, that decides which
came first. Published figures of such traces were made that way; with the same times a split can be
held against them to the last digit. Durations stay exact, and nothing that compares ranks uses
these times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from meshwright.diagnose.trace.columns import Longs, Trace

EXACT = 2**53  # up to here, doubles hold every whole number


def as_doubles(trace: Trace) -> Trace:
    """The trace with starts as doubles hold them; the trace itself where they are exact."""
    tables = {name: getattr(trace, name) for name in ("device", "calls", "operators")}
    latest = max((int(t.start_ns[-1]) for t in tables.values() if len(t)), default=0)
    if trace.origin_ns + latest < EXACT:
        return trace
    return replace(trace, **{n: _moved(table, trace.origin_ns) for n, table in tables.items()})


def _moved(table: Any, origin_ns: int) -> Any:
    start = doubled(table.start_ns, origin_ns)
    return replace(table, start_ns=start, end_ns=start + (table.end_ns - table.start_ns))


def doubled(at_ns: Longs, origin_ns: int) -> Longs:
    """Nanoseconds since the origin after the way through doubles; order is kept."""
    us, rest = np.divmod(at_ns + origin_ns, 1000)
    through = np.rint((us + rest / 1000.0) * 1000.0)
    return np.asarray(through.astype(np.int64) - origin_ns, dtype=np.int64)
