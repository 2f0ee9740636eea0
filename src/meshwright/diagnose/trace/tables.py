"""Columns from decoded events, a piece of the file at a time, without a loop over events."""

from __future__ import annotations

from collections import Counter
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from meshwright.diagnose.trace.chunks import Chunks
from meshwright.diagnose.trace.columns import Host, Message, Shape
from meshwright.diagnose.trace.events import Exact, ExactInstant, Instant, Named, Timed
from meshwright.diagnose.trace.kinds import PARTS, Part, is_annotation
from meshwright.diagnose.trace.numbers import Names, Numbers, Threads
from meshwright.diagnose.trace.times import (
    BAD_NS,
    LONGEST_US,
    nanoseconds,
    nanoseconds_of_text,
    needs_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from meshwright.diagnose.trace.events import Events

PYTHON_FROM_NS = 100_000  # shorter Python frames are counted, not kept
_UNKNOWN = 1_000  # codes of categories that `PARTS` does not hold begin here
_MANY = 1_000_000  # distinct names, messages or shapes: no real trace has as many
_MEMORY = "[memory]"

_CAT, _NAME, _TS, _DUR, _ARGS = map(attrgetter, ("cat", "name", "ts", "dur", "args"))
_THREAD = attrgetter("pid", "tid")
_SAID = ("collective", "group", "ranks")
_MESSAGE = attrgetter(
    "collective", "group", "description", "ranks", "group_size", "dtype",
    "in_elements", "out_elements", "source_rank", "target_rank",
)  # fmt: skip


class LostDigits(Exception):  # noqa: N818 - always caught, and decoded again
    """Floats do not hold the times of these events."""


class Tables:
    """The tables of one file as they grow, the numbers of its names, and what was left out."""

    def __init__(self) -> None:
        self.names = Names(_MANY, limit_characters=64 << 20)
        self.threads = Threads()
        self.messages = Numbers(_MANY)
        self.shapes = Numbers(_MANY)
        self.device = Chunks(
            "start_ns", "end_ns", "name", "kind", "device", "stream", "correlation",
            "external", "message", "seq", "bytes",
        )  # fmt: skip
        self.calls = Chunks("start_ns", "end_ns", "name", "thread", "correlation", "external")
        self.operators = Chunks(
            "start_ns", "end_ns", "name", "kind", "thread", "external", "message", "seq", "shape"
        )
        self.spans = Chunks("start_ns", "end_ns", "name", "device", "stream")
        self.allocations = Chunks("at_ns", "bytes", "allocated_bytes", "reserved_bytes", "device")
        self.first_ns: int | None = None
        self.processes: set[str] = set()
        self.apart: Counter[str] = Counter()
        self.unknown_us: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.bad: Counter[str] = Counter()
        self.bad_us: Counter[str] = Counter()
        self.short_frames = 0
        self.short_frames_us = 0.0

    def add(self, events: Events) -> None:
        """Adds a piece's events; raises `LostDigits` where they must be decoded as text."""
        kinds = list(map(type, events))
        present = set(kinds)
        timed, instants, named = (
            [_of(kind, kinds, events) for kind in wanted if kind in present]
            for wanted in ((Timed, Exact), (Instant, ExactInstant), (Named,))
        )
        times = [*map(_ns, timed)], [*map(_ns, instants)]  # before anything is added
        for rows, ns in zip(timed, times[0], strict=True):
            self._add_timed(rows, ns)
        for rows, ns in zip(instants, times[1], strict=True):
            self._add_allocations(rows, ns)
        self.processes.update(
            e.args.name for rows in named for e in rows if e.name == "process_name"
        )

    def _add_timed(self, rows: Events, start: NDArray[np.int64]) -> None:
        """Adds events with a duration to the tables of their categories."""
        us = _floats(map(_DUR, rows), len(rows))
        fine = self._fine(start, us)
        ns = nanoseconds(np.where(fine, us, 0.0))
        codes = _Codes()
        code = _ints(map(codes.__getitem__, map(_CAT, rows)), len(rows))
        self._count_others(codes, code, us, fine)
        if fine.any():
            first = int(start[fine].min())
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)
        for part, add in (
            (Part.DEVICE, self._add_device),
            (Part.CALL, self._add_calls),
            (Part.HOST, self._add_operators),
            (Part.SPAN, self._add_spans),
        ):
            chosen = fine & (code // 100 == part)
            if chosen.any():
                begun = start[chosen]
                picked = list(compress(rows, chosen.tolist()))
                add(picked, begun, begun + ns[chosen], code[chosen] % 100)

    def _fine(self, start: NDArray[np.int64], us: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which events have a time that can be; counts the others."""
        unknown = np.isnan(us)
        negative = us < 0
        endless = us > LONGEST_US
        timeless = start == BAD_NS
        self._count_bad("without a readable start", timeless, 0.0)
        self._count_bad("without a readable duration", unknown & ~timeless, 0.0)
        self._count_bad("of negative duration", negative & ~timeless, us)
        self._count_bad("longer than a month", endless & ~timeless, 0.0)
        fine: NDArray[np.bool_] = ~(unknown | negative | endless | timeless)
        return fine

    def _count_bad(self, what: str, which: NDArray[np.bool_], us: Any) -> None:
        if count := int(np.count_nonzero(which)):
            self.bad[what] += count
            if isinstance(us, np.ndarray):
                total = float(-np.maximum(us[which], -LONGEST_US).sum())
                self.bad_us[what] += total  # type: ignore[assignment]

    def _count_others(
        self,
        codes: _Codes,
        code: NDArray[np.int32],
        us: NDArray[np.float64],
        fine: NDArray[np.bool_],
    ) -> None:
        """Counts the events whose category no table takes."""
        for word, number in codes.items():
            if number >= _UNKNOWN or number // 100 == Part.APART:
                mine = code == number
                if number < _UNKNOWN:
                    self.apart[word] += int(np.count_nonzero(mine))
                else:
                    self.unknown[word] += int(np.count_nonzero(mine))
                    self.unknown_us[word] += float(us[mine & fine].sum())  # type: ignore[assignment]

    def _add_device(self, rows: Events, start: Any, end: Any, kind: Any) -> None:
        args = list(map(_ARGS, rows))
        count = len(rows)
        self.device.add(
            start_ns=start,
            end_ns=end,
            name=_ints(map(self.names.__getitem__, map(_NAME, rows)), count),
            kind=kind,
            device=_stated("device", args, lambda i: _trailing(rows[i].pid)),
            stream=_stated("stream", args, lambda i: _trailing(rows[i].tid)),
            correlation=_longs(map(attrgetter("correlation"), args), count),
            external=_external(args),
            message=self._messages(args),
            seq=_longs(map(attrgetter("seq"), args), count),
            bytes=_longs(map(attrgetter("bytes"), args), count),
        )

    def _add_calls(self, rows: Events, start: Any, end: Any, _kind: Any) -> None:
        args = list(map(_ARGS, rows))
        self.calls.add(
            start_ns=start,
            end_ns=end,
            name=_ints(map(self.names.__getitem__, map(_NAME, rows)), len(rows)),
            thread=_ints(map(self.threads.__getitem__, map(_THREAD, rows)), len(rows)),
            correlation=_longs(map(attrgetter("correlation"), args), len(rows)),
            external=_external(args),
        )

    def _add_operators(self, rows: Events, start: Any, end: Any, kind: Any) -> None:
        brief = (kind == Host.PYTHON) & (end - start < PYTHON_FROM_NS)
        if brief.any():
            self.short_frames += int(np.count_nonzero(brief))
            self.short_frames_us += float((end - start)[brief].sum()) / 1000
            rows = list(compress(rows, (~brief).tolist()))
            start, end, kind = start[~brief], end[~brief], kind[~brief]
        names = list(map(_NAME, rows))
        args = list(map(_ARGS, rows))
        self.operators.add(
            start_ns=start,
            end_ns=end,
            name=_ints(map(self.names.__getitem__, names), len(rows)),
            kind=_told_apart(rows, names, kind),
            thread=_ints(map(self.threads.__getitem__, map(_THREAD, rows)), len(rows)),
            external=_external(args),
            message=self._messages(args),
            seq=_longs(map(attrgetter("seq"), args), len(rows)),
            shape=self._shapes(args),
        )

    def _add_spans(self, rows: Events, start: Any, end: Any, _kind: Any) -> None:
        args = list(map(_ARGS, rows))
        self.spans.add(
            start_ns=start,
            end_ns=end,
            name=_ints(map(self.names.__getitem__, map(_NAME, rows)), len(rows)),
            device=_stated("device", args, lambda i: _trailing(rows[i].pid)),
            stream=_stated("stream", args, lambda i: _trailing(rows[i].tid)),
        )

    def _add_allocations(self, rows: Events, at: NDArray[np.int64]) -> None:
        mine = np.fromiter((e.name == _MEMORY for e in rows), dtype=bool, count=len(rows))
        rows, at = list(compress(rows, mine.tolist())), at[mine]
        fine = at != BAD_NS
        self._count_bad("of the allocator without a readable time", ~fine, 0.0)
        args = list(compress(map(_ARGS, rows), fine.tolist()))
        hosts = _longs(map(attrgetter("device_type"), args), len(args)) == 0
        devices = _longs(map(attrgetter("device"), args), len(args))
        self.allocations.add(
            at_ns=at[fine],
            bytes=_longs(map(attrgetter("gained"), args), len(args)),
            allocated_bytes=_longs(map(attrgetter("allocated"), args), len(args)),
            reserved_bytes=_longs(map(attrgetter("reserved"), args), len(args)),
            device=np.where(hosts, -1, devices),
        )

    def _messages(self, args: Sequence[Any]) -> NDArray[np.int32]:
        """Numbers of the messages that events carry, -1 for none."""
        result = np.full(len(args), -1, dtype=np.int32)
        for word in _SAID:
            said = list(map(attrgetter(word), args))
            for index in compress(range(len(args)), said) if any(said) else ():
                result[index] = self.messages[_MESSAGE(args[index])]
        return result

    def _shapes(self, args: Sequence[Any]) -> NDArray[np.int32]:
        """Numbers of the shapes that operators carry, -1 for none."""
        dims = list(map(bytes, map(attrgetter("dims"), args)))
        result = np.full(len(args), -1, dtype=np.int32)
        if chosen := list(compress(range(len(args)), dims)):
            keys = [(dims[i], bytes(args[i].types)) for i in chosen]
            result[chosen] = _ints(map(self.shapes.__getitem__, keys), len(chosen))
        return result

    def message_nouns(self) -> tuple[Message, ...]:
        """The messages by their numbers."""
        fields = (
            "collective", "group", "description", "ranks", "group_size", "dtype",
            "in_elements", "out_elements", "source_rank", "target_rank",
        )  # fmt: skip
        return tuple(Message(**dict(zip(fields, key, strict=True))) for key in self.messages)

    def shape_nouns(self) -> tuple[Shape, ...]:
        """The shapes by their numbers."""
        return tuple(Shape(dims=_read(dims), types=_read(types)) for dims, types in self.shapes)


class _Codes(dict[str, int]):
    """Codes of categories: a hundred times the part, plus the kind in it."""

    def __missing__(self, word: str) -> int:
        part = PARTS.get(word)
        code = part[0] * 100 + part[1] if part else _UNKNOWN + len(self)
        self[word] = code
        return code


def _of(kind: type, kinds: list[type], events: Events) -> Events:
    return list(compress(events, map(is_, kinds, repeat(kind))))


def _ns(rows: Events) -> NDArray[np.int64]:
    """Starts in nanoseconds."""
    if isinstance(rows[0], Timed | Instant):
        us = _floats(map(_TS, rows), len(rows))
        if needs_text(us):
            raise LostDigits
        return nanoseconds(us)
    return nanoseconds_of_text(list(map(_TS, rows)))


def _told_apart(rows: Events, names: list[str], kind: NDArray[Any]) -> NDArray[Any]:
    """Kinds of host events where the category "Operator" may hold annotations too."""
    if not any(e.cat == "Operator" for e in rows[:1] + rows[-1:]) and "Operator" not in set(
        map(_CAT, rows)
    ):
        return kind
    marked = np.fromiter(map(is_annotation, names), dtype=bool, count=len(names))
    return np.where((kind == Host.OPERATOR) & marked, Host.ANNOTATION, kind)


def _external(args: Sequence[Any]) -> NDArray[np.int64]:
    """Numbers that join device events to operators, under either spelling."""
    result = _longs(map(attrgetter("external"), args), len(args))
    if len(result) and result.min() < 0:
        old = _longs(map(attrgetter("external_old"), args), len(args))
        result = np.where(result < 0, old, result)
    return result


def _stated(name: str, args: Sequence[Any], otherwise: Callable[[int], int]) -> NDArray[np.int32]:
    """A device's or stream's number as the arguments state it, or by another way."""
    result = _longs(map(attrgetter(name), args), len(args))
    for index in np.flatnonzero(result < 0):
        result[index] = otherwise(int(index))
    large = np.abs(result) > _LARGEST
    result[large] = result[large] % _LARGEST
    return result.astype(np.int32)


_LARGEST = 2**31 - 1


def _trailing(value: int | str) -> int:
    """The number of a timeline: 7, "7" or "stream 7"; -1 if it has none."""
    if isinstance(value, int):
        return value if abs(value) < _LARGEST else value % _LARGEST
    digits = value.rsplit(" ", 1)[-1]
    return int(digits) if digits.isdecimal() and len(digits) < 10 else -1


def _read(text: bytes) -> tuple[Any, ...]:
    """A list of JSON as a tuple, all lists in it too; PyTorch 1.x wrote it as text."""
    if not text:
        return ()
    try:
        value = msgspec.json.decode(text)
        value = msgspec.json.decode(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, RecursionError):
        return ()
    frozen = _frozen(value)
    return frozen if isinstance(frozen, tuple) else ()


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _ints(values: Iterable[int], count: int) -> NDArray[np.int32]:
    return np.fromiter(values, dtype=np.int32, count=count)


def _longs(values: Iterable[int], count: int) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64, count=count)


def _floats(values: Iterable[float], count: int) -> NDArray[np.float64]:
    return np.fromiter(values, dtype=np.float64, count=count)
