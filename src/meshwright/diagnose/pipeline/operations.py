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
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

LIMIT_BYTES = 1 << 30
MOST_KINDS = 256  # of operations; a training step has some twenty
LARGEST = 1e18  # microseconds and numbers of anything beyond this are not believed
THREAD = re.compile(r"PP rank (\d{1,6}),? *TP rank (\d{1,6})(?:,? *(.*))?")
Scalar = int | float | str | bool | None
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
    step: Scalar = None
    model_chunk: Scalar = None
    mb_id: Scalar = None
    name: Scalar = None


class _Event(msgspec.Struct, gc=False):
    ph: Scalar = None
    cat: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Scalar = None
    dur: Scalar = None
    args: _Arguments | None = None


class _Document(msgspec.Struct, gc=False):
    traceEvents: list[_Event] = []  # noqa: N815 - the name in the file


NO_ARGUMENTS = _Arguments()


def read_operations(paths: Sequence[str | Path], *, limit_bytes: int = LIMIT_BYTES) -> Operations:
    """The operations in files, one or several of one run. `InvalidInput` where there are none."""
    left: list[Left] = []
    columns: list[_Columns] = []
    for path in paths:
        events = _events(whole_text(path, limit_bytes=limit_bytes, left=left), left)
        threads = {
            (e.pid, e.tid): found
            for e in events
            if e.ph == "M" and e.name == "thread_name" and (found := _thread(e.args))
        }
        columns.append(_columns([e for e in events if e.ph == "X"], threads, left))
    joined = _joined(columns)
    if not len(joined.kind):
        raise refusal(paths[0], "holds no operations of a pipeline", hint=HINT)
    return _sorted(_of_usual_kinds(joined, left), left)


def _of_usual_kinds(columns: _Columns, left: list[Left]) -> _Columns:
    """Without operations of kinds beyond the most frequent ones."""
    counts = Counter(columns.kind.tolist())
    if len(counts) <= MOST_KINDS:
        return columns
    usual = {kind for kind, _ in counts.most_common(MOST_KINDS)}
    kept = np.array([kind in usual for kind in columns.kind.tolist()], dtype=bool)
    _count(left, ~kept, "operations of rare kinds", f"only {MOST_KINDS} kinds are kept")
    return _Columns(kind=columns.kind[kept], numbers=columns.numbers[:, kept])


def _events(text: bytearray, left: list[Left]) -> list[_Event]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Operations as a file has them, `kind` in words."""

    kind: NDArray[np.object_]
    numbers: Floats  # step, dp, pp, tp, chunk, mb, start, dur: shape [8, operations]


def _columns(
    events: Sequence[_Event],
    threads: Mapping[tuple[Scalar, Scalar], tuple[int, int]],
    left: list[Left],
) -> _Columns:
    """The operations among a file's events; those that cannot be used are counted in `left`."""
    nowhere = (-1, -1)
    place = [threads.get((e.pid, e.tid), nowhere) for e in events]
    args = [e.args or NO_ARGUMENTS for e in events]
    numbers = np.array(
        [
            _whole(a.step for a in args),
            _whole(e.pid for e in events),
            [pp for pp, _ in place],
            [tp for _, tp in place],
            _whole(a.model_chunk for a in args),
            _whole(a.mb_id for a in args),
            _floats([e.ts for e in events]),
            _floats([e.dur for e in events]),
        ]
    )
    kind = np.array([e.cat or e.name for e in events], dtype=object)
    placed = (numbers[:3] >= 0).all(axis=0) & np.array([type(k) is str for k in kind], dtype=bool)
    timed = (np.abs(numbers[6:]) < LARGEST).all(axis=0) & (numbers[7] >= 0)
    _count(left, ~placed, "operations without a worker or step", "thread, pid or args.step missing")
    _count(left, placed & ~timed, "operations without times", "ts or dur is no number or negative")
    return _Columns(kind=kind[placed & timed], numbers=numbers[:, placed & timed])


def _count(left: list[Left], which: NDArray[np.bool_], what: str, reason: str) -> None:
    if which.any():
        left.append(Left(what=what, count=int(which.sum()), time_us=0.0, reason=reason))


def _floats(values: list[Scalar]) -> Floats:
    """Numbers, also those written as text; NaN for everything else."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(value) for value in values], dtype=np.float64)


def _number(value: Scalar) -> float:
    try:
        return float(value) if value is not None else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _whole(values: Iterable[Scalar]) -> Floats:
    """Whole numbers from 0; -1 for everything else."""
    numbers = _floats(list(values))
    return np.where((numbers >= 0) & (numbers < LARGEST), np.floor(numbers), -1.0)


def columns_of(rows: Sequence[tuple[Any, ...]]) -> Operations:
    """Operations from rows (kind, step, dp, pp, tp, chunk, mb, start_us, dur_us), at least one."""
    numbers = np.array([row[1:] for row in rows], dtype=np.float64).T
    kind = np.array([row[0] for row in rows], dtype=object)
    return _sorted(_Columns(kind=kind, numbers=numbers), ())


def _joined(columns: Sequence[_Columns]) -> _Columns:
    return _Columns(
        kind=np.concatenate([c.kind for c in columns]),
        numbers=np.concatenate([c.numbers for c in columns], axis=1),
    )


def _sorted(columns: _Columns, left: Sequence[Left]) -> Operations:
    names = columns.kind.tolist()
    kinds = tuple(sorted(set(names)))
    number = {name: n for n, name in enumerate(kinds)}
    kind = np.array([number[name] for name in names], dtype=np.int64)
    step, dp, pp, tp, chunk, mb = columns.numbers[:6].astype(np.int64)
    start, dur = columns.numbers[6:]
    own = tp == tp.min()
    order = np.lexsort((kind, start, pp, dp, step))
    order = order[own[order]]
    return Operations(
        kinds=kinds,
        kind=kind[order],
        step=step[order],
        dp=dp[order],
        pp=pp[order],
        chunk=chunk[order],
        mb=mb[order],
        seq=_counted([key[order] for key in (kind, pp, dp, step)]),
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
