"""A trace of whole operations as columns: ByteDance's StragglerAnalysis layout.

A bare JSON array (or "traceEvents") of complete events, one for each operation of each worker:
`cat` is the kind ("forward-compute", "grads-reduce-scatter", ...), `pid` the data-parallel rank,
the thread's name says the stage ("PP rank 0, TP rank 0, compute"), `args` step, model_chunk, mb_id
and seq_id. Layout from github.com/ByteDance-Seed/StragglerAnalysis, data/timeline-*.json.gz.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.text import refusal, whole_text
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

LIMIT_BYTES = 1 << 30
LARGEST = 1e18  # microseconds and numbers of anything beyond this are not believed
THREAD = re.compile(r"PP rank (\d{1,6}),? *TP rank (\d{1,6})(?:,? *(.*))?")
HINT = "give a timeline-*.json.gz with events whose args have step and mb_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Operations of a run; all columns have one length and are sorted by step, dp, pp, start.

    `kind` is a number into `kinds`, `seq` counts the operations of a kind on a worker in a step by
    their start. `mb` and `chunk` are -1 where the file does not say. Times are microseconds.
    """

    kinds: tuple[str, ...]
    kind: Longs
    step: Longs
    dp: Longs
    pp: Longs
    chunk: Longs
    mb: Longs
    seq: Longs
    start_us: Floats
    dur_us: Floats
    left: tuple[Left, ...] = ()

    def __len__(self) -> int:
        return len(self.kind)

    def of(self, *kinds: str) -> NDArray[np.bool_]:
        """Which operations are of these kinds."""
        return np.isin(self.kind, [self.kinds.index(k) for k in kinds if k in self.kinds])


class _Arguments(msgspec.Struct, gc=False):
    step: Any = None
    model_chunk: Any = None
    mb_id: Any = None
    name: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: _Arguments | None = None


class _Document(msgspec.Struct, gc=False):
    traceEvents: list[_Event] = []  # noqa: N815 - the name in the file


def read_operations(paths: Sequence[str | Path], *, limit_bytes: int = LIMIT_BYTES) -> Operations:
    """The operations in files, one or several of one run. `InvalidInput` where there are none."""
    left: list[Left] = []
    rows: list[tuple[Any, ...]] = []
    for path in paths:
        events = _events(whole_text(path, limit_bytes=limit_bytes, left=left), left)
        threads = {
            (str(e.pid), str(e.tid)): found
            for e in events
            if e.ph == "M" and e.name == "thread_name" and (found := _thread(e.args))
        }
        own, bad = _rows(events, threads)
        rows += own
        left += [Left(what=w, count=c, time_us=0.0, reason=r) for (w, r), c in bad.items()]
    if not rows:
        raise refusal(paths[0], "holds no operations of a pipeline", hint=HINT)
    return columns_of(rows, left)


def _events(text: bytes, left: list[Left]) -> list[_Event]:
    try:
        decoded = msgspec.json.decode(text, type=list[_Event] | _Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return list(_salvaged(text.decode("utf-8", "replace"), left))
    return decoded.traceEvents if isinstance(decoded, _Document) else decoded


def _salvaged(text: str, left: list[Left]) -> Iterator[_Event]:
    """The events of damaged text, one by one; what is no event is passed over."""
    decoder = json.JSONDecoder(strict=False)
    at, bad = _first(text), 0
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = decoder.raw_decode(text, at)
            yield msgspec.convert(value, _Event)
        except (ValueError, RecursionError):  # also what does not convert
            bad += 1
            at = _next(text, at + 1)
    if bad:
        reason = "the text is no event of a trace there"
        left.append(Left(what="damaged events", count=bad, time_us=0.0, reason=reason))


def _first(text: str) -> int:
    """Where events begin: after the "[" of the array."""
    return text.find("[") + 1


def _next(text: str, at: int) -> int:
    """Where the next event may begin: at an opening brace after a comma."""
    found = re.compile(r",\s*(?=\{)").search(text, at)
    return found.end() if found else len(text)


def _thread(args: _Arguments | None) -> tuple[int, int] | None:
    found = THREAD.search(args.name) if args and isinstance(args.name, str) else None
    return (int(found[1]), int(found[2])) if found else None


def _rows(
    events: Sequence[_Event], threads: dict[tuple[str, str], tuple[int, int]]
) -> tuple[list[tuple[Any, ...]], Counter[tuple[str, str]]]:
    """(kind, step, dp, pp, tp, chunk, mb, start, dur) of each operation; what is none, counted."""
    rows: list[tuple[Any, ...]] = []
    bad: Counter[tuple[str, str]] = Counter()
    for e in events:
        if e.ph != "X":
            continue
        place = threads.get((str(e.pid), str(e.tid)))
        args = e.args or _Arguments()
        step, dp = _whole(args.step), _whole(e.pid)
        start, dur = _number(e.ts), _number(e.dur)
        kind = e.cat or e.name
        if place is None or step < 0 or dp < 0 or not isinstance(kind, str):
            bad["operations without a worker or step", "thread, pid or args.step missing"] += 1
        elif start is None or dur is None or dur < 0:
            bad["operations without times", "ts or dur is no number, or negative"] += 1
        else:
            chunk, mb = _whole(args.model_chunk), _whole(args.mb_id)
            rows.append((kind, step, dp, *place, chunk, mb, start, dur))
    return rows, bad


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) < LARGEST else None


def _whole(value: Any) -> int:
    number = _number(value)
    return int(number) if number is not None and number >= 0 else -1


def columns_of(rows: Sequence[tuple[Any, ...]], left: Sequence[Left] = ()) -> Operations:
    """Columns of rows (kind, step, dp, pp, tp, chunk, mb, start_us, dur_us), at least one."""
    kinds = tuple(sorted({row[0] for row in rows}))
    number = {name: n for n, name in enumerate(kinds)}
    kind = np.array([number[row[0]] for row in rows], dtype=np.int64)
    step, dp, pp, tp, chunk, mb = np.array([row[1:7] for row in rows], dtype=np.int64).T
    start, dur = np.array([row[7:] for row in rows], dtype=np.float64).T
    own = tp == tp.min()
    order = np.lexsort((kind, start, pp, dp, step))
    order = order[own[order]]
    columns = {"step": step, "dp": dp, "pp": pp, "chunk": chunk, "mb": mb, "kind": kind}
    columns = {name: column[order] for name, column in columns.items()}
    return Operations(
        kinds=kinds,
        **columns,
        seq=_counted([columns[name] for name in ("kind", "pp", "dp", "step")]),
        start_us=start[order],
        dur_us=dur[order],
        left=(*left, *_of_others(dur[~own])),
    )


def _of_others(dur_us: Floats) -> tuple[Left, ...]:
    if not len(dur_us):
        return ()
    return (
        Left(
            what="operations of other tensor-parallel ranks",
            count=len(dur_us),
            time_us=float(dur_us.sum()),
            reason="the first one stands for all",
        ),
    )


def _counted(keys: Sequence[Longs]) -> Longs:
    """How many rows before each one have the same keys."""
    order = np.lexsort(keys)
    new = np.zeros(len(order), dtype=bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    counted = np.empty(len(order), dtype=np.int64)
    counted[order] = np.arange(len(order)) - first
    return counted
