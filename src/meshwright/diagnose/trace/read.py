"""A trace file as a `Trace`, read in bounded pieces."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.diagnose.trace.cleaning import cleaned
from meshwright.diagnose.trace.columns import (
    Allocations,
    Calls,
    DeviceEvents,
    Left,
    Operators,
    Spans,
    Trace,
)
from meshwright.diagnose.trace.cutting import next_piece
from meshwright.diagnose.trace.decoding import Decoder
from meshwright.diagnose.trace.document import closed, opened
from meshwright.diagnose.trace.joining import joined
from meshwright.diagnose.trace.meta import meta_of
from meshwright.diagnose.trace.source import LIMIT_BYTES, PIECE_BYTES, refuse, text_pieces
from meshwright.diagnose.trace.tables import LostDigits, Tables
from meshwright.diagnose.trace.telling import bounds_of, facts_of, lefts_of
from meshwright.diagnose.trace.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.diagnose.trace.cutting import Piece


_MOST_BAD = 100_000  # damaged events after which the rest of a file is not looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """What the events of a file came to."""

    events: int
    bad: int
    finished: bool


def read_trace(path: str | Path, *, limit_bytes: int = LIMIT_BYTES) -> Trace:
    """The trace in a .json or .json.gz file of any layout and era.

    Memory is that of the columns and of one piece of the file. Times are exact nanoseconds. What
    is damaged is left out and told in `Trace.left`; raises `InvalidInput` where nothing can be
    read, or where the text has more than `limit_bytes`.
    """
    told: list[Left] = []
    window = Window(text_pieces(path, told=told, limit_bytes=limit_bytes))
    tables = Tables()
    with _collector_paused():
        head = opened(path, window)
        count = _read_events(window, tables, told)
        if not count.events and (count.bad or not count.finished):
            refuse(path, "none of its events can be decoded" if count.bad else "it has no events")
        tail = closed(window, told=told) if count.finished else {}
        return _trace(path, window, tables, count=count, metadata=(head, tail), told=told)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No collection of cycles: decoded events have none, and there are many."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _read_events(window: Window, tables: Tables, told: list[Left]) -> _Count:
    """Reads the array in the window into tables, and leaves the window behind it."""
    decoder, damage = Decoder(), _Damage()
    events, finished = 0, False
    while not finished and damage.bad + damage.none < _MOST_BAD:
        decoder.lenient = False
        piece = next_piece(window, decoder, size=PIECE_BYTES)
        if piece is None:
            break
        good, none = cleaned(piece.events) if decoder.lenient else (piece.events, 0)
        try:
            tables.add(good)
        except LostDigits:
            decoder.exact = True
            continue
        window.drop(piece.end, instead=b"" if piece.closed else b"[")
        events += len(piece.events) - none
        damage.add(piece, none)
        finished = piece.closed
    told += damage.lefts(finished=finished)
    return _Count(events=events, bad=damage.bad + damage.none, finished=finished)


class _Damage:
    """What could not be decoded so far."""

    def __init__(self) -> None:
        self.bad = 0  # events
        self.none = 0  # entries that are no events
        self.lost_bytes = 0
        self.mended = False

    def add(self, piece: Piece, none: int) -> None:
        """Counts a piece's damage."""
        self.bad += piece.bad
        self.none += none
        self.lost_bytes += piece.lost_bytes
        self.mended = self.mended or piece.mended

    def lefts(self, *, finished: bool) -> Iterator[Left]:
        """What to tell of it."""
        if self.bad:
            what = f"damaged events ({self.lost_bytes:,} bytes)"
            yield _left(what, self.bad, "they could not be decoded")
        if self.none:
            yield _left("entries that are no events", self.none, "they state no phase (ph)")
        if self.mended:
            reason = "control characters, bad UTF-8, NaN, infinities or commas were replaced"
            yield _left("text that is no JSON", 1, reason)
        if self.bad + self.none >= _MOST_BAD:
            yield _left("rest of the file", 1, f"more than {_MOST_BAD:,} events are damaged")
        elif not finished:
            yield _left("end of the file", 1, "it ends within its events")


def _left(what: str, count: int, reason: str) -> Left:
    return Left(what=what, count=count, time_us=0.0, reason=reason)


def _trace(
    path: str | Path,
    window: Window,
    tables: Tables,
    *,
    count: _Count,
    metadata: tuple[dict[str, Any], dict[str, Any]],
    told: list[Left],
) -> Trace:
    meta = meta_of(metadata, processes=tables.processes)
    bounds = bounds_of(tables)
    names, messages = tuple(tables.names.texts), tables.message_nouns()
    device = DeviceEvents(**tables.device.sorted(**bounds))
    calls = Calls(**tables.calls.sorted(**bounds))
    operators = Operators(**tables.operators.sorted(**bounds))
    return Trace(
        file=str(path),
        file_bytes=Path(path).stat().st_size,
        json_bytes=window.read_bytes,
        events=count.events,
        bad_events=count.bad + sum(tables.bad.values()),
        origin_ns=bounds["origin_ns"],
        names=names,
        messages=messages,
        shapes=tables.shape_nouns(),
        device=joined(device, calls, operators, names=names, messages=messages),
        calls=calls,
        operators=operators,
        allocations=Allocations(**tables.allocations.sorted(**bounds)),
        spans=Spans(**tables.spans.sorted(**bounds)),
        meta=meta,
        left=(*told, *lefts_of(tables)),
        facts=facts_of(tables),
    )
