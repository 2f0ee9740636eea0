"""Columns from decoded events, a piece of the file at a time, without a loop over events."""

from __future__ import annotations

from collections import Counter
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from meshwright.diagnose.trace.chunks import Chunks
from meshwright.diagnose.trace.columns import Device, Host, Message, Shape
from meshwright.diagnose.trace.events import NOTHING, Exact, ExactInstant, Instant, Named, Timed
from meshwright.diagnose.trace.kinds import CONTROL, PARTS, Part, is_annotation, is_copy, is_wait
from meshwright.diagnose.trace.numbers import Names, Numbers, Threads
from meshwright.diagnose.trace.times import (
    BAD_NS,
    LONGEST_US,
    nanoseconds,
    nanoseconds_of_text,
    needs_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from meshwright.diagnose.trace.events import Events

PYTHON_FROM_NS = 100_000  # shorter Python frames are counted, not kept
_UNKNOWN = 1_000  # codes of categories that `PARTS` does not hold begin here
_CATEGORIES = 1_000  # distinct ones
_NEVER = 2**62
_MANY = 1_000_000  # distinct names, messages or shapes: no real trace has as many
_MEMORY = "[memory]"

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
        self.first_ns = _NEVER  # of any event with a duration
        self.processes: set[str] = set()
        self.codes = _Codes()
        self.others: dict[int, tuple[int, float]] = {}  # count and time by code
        self.bad: Counter[str] = Counter()
        self.negative_us = 0.0
        self.device_waits = 0
        self.device_waits_us = 0.0
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
        codes = self.codes
        code = [codes[e.cat] for e in rows]
        us = _floats([e.dur for e in rows])
        fine = (us >= 0) & (us <= LONGEST_US) & (start != BAD_NS)
        if not fine.all():
            self._count_bad(start, us)
            us[~fine] = 0.0
        end = start + nanoseconds(us)
        self.first_ns = min(self.first_ns, int(start[fine].min(initial=_NEVER)))
        which = _ints(code)
        part, kind = which // 100, which % 100
        for number, add in enumerate(
            (self._add_device, self._add_calls, self._add_operators, self._add_spans)
        ):
            chosen = np.flatnonzero((part == number) & fine)
            if len(chosen):
                picked = [rows[i] for i in chosen.tolist()]
                add(picked, start[chosen], end[chosen], kind[chosen])
        others = part >= Part.APART
        if others.any():
            self._count_others(which[others], us[others])

    def _count_bad(self, start: NDArray[np.int64], us: NDArray[np.float64]) -> None:
        """Counts events whose times cannot be."""
        timed = start != BAD_NS
        for what, which in (
            ("without a readable start", ~timed),
            ("without a readable duration", np.isnan(us) & timed),
            ("longer than a month", (us > LONGEST_US) & timed),
            ("of negative duration", (us < 0) & timed),
        ):
            if count := int(np.count_nonzero(which)):
                self.bad[what] += count
        self.negative_us -= float(np.clip(us[(us < 0) & timed], -LONGEST_US, 0).sum())

    def _count_others(self, code: NDArray[np.int32], us: NDArray[np.float64]) -> None:
        """Counts the events whose category no table takes, and their time."""
        for number in np.unique(code).tolist():
            mine = code == number
            count, time_us = self.others.get(number, (0, 0.0))
            self.others[number] = count + int(mine.sum()), time_us + float(us[mine].sum())

    def _add_device(self, rows: Events, start: Any, end: Any, kind: Any) -> None:
        if any(e.cat in CONTROL for e in rows):
            rows, start, end, kind = self._without_waits(rows, start, end, kind)
        args = [e.args for e in rows]
        names = self.names
        message = self._messages(args)
        self.device.add(
            start_ns=start,
            end_ns=end,
            name=_ints([names[e.name] for e in rows]),
            kind=kind,
            device=_stated([a.device for a in args], lambda i: _trailing(rows[i].pid)),
            stream=_stated([a.stream for a in args], lambda i: _trailing(rows[i].tid)),
            correlation=_longs([a.correlation for a in args]),
            external=_external(args),
            message=message,
            seq=_sequence(message, args),
            bytes=_longs([a.bytes for a in args]),
        )

    def _without_waits(self, rows: Events, start: Any, end: Any, kind: Any) -> Any:
        """Device events without those of a control processor that are no work."""
        mine = [e.cat in CONTROL for e in rows]
        waits = np.array([m and is_wait(e.name) for m, e in zip(mine, rows, strict=True)])
        copies = np.array([m and is_copy(e.name) for m, e in zip(mine, rows, strict=True)])
        self.device_waits += int(waits.sum())
        self.device_waits_us += float((end - start)[waits].sum()) / 1000
        kind = np.where(copies, Device.COPY, kind)
        return list(compress(rows, (~waits).tolist())), start[~waits], end[~waits], kind[~waits]

    def _add_calls(self, rows: Events, start: Any, end: Any, _kind: Any) -> None:
        args = [e.args for e in rows]
        names, threads = self.names, self.threads
        self.calls.add(
            start_ns=start,
            end_ns=end,
            name=_ints([names[e.name] for e in rows]),
            thread=_ints([threads[e.pid, e.tid] for e in rows]),
            correlation=_longs([a.correlation for a in args]),
            external=_external(args),
        )

    def _add_operators(self, rows: Events, start: Any, end: Any, kind: Any) -> None:
        brief = (kind == Host.PYTHON) & (end - start < PYTHON_FROM_NS)
        if brief.any():
            self.short_frames += int(np.count_nonzero(brief))
            self.short_frames_us += float((end - start)[brief].sum()) / 1000
            rows = list(compress(rows, (~brief).tolist()))
            start, end, kind = start[~brief], end[~brief], kind[~brief]
        args = [e.args for e in rows]
        names, threads = self.names, self.threads
        message = self._messages(args)
        self.operators.add(
            start_ns=start,
            end_ns=end,
            name=_ints([names[e.name] for e in rows]),
            kind=_told_apart(rows, kind),
            thread=_ints([threads[e.pid, e.tid] for e in rows]),
            external=_external(args),
            message=message,
            seq=_sequence(message, args),
            shape=self._shapes(args),
        )

    def _add_spans(self, rows: Events, start: Any, end: Any, _kind: Any) -> None:
        names = self.names
        self.spans.add(
            start_ns=start,
            end_ns=end,
            name=_ints([names[e.name] for e in rows]),
            device=_stated([e.args.device for e in rows], lambda i: _trailing(rows[i].pid)),
            stream=_stated([e.args.stream for e in rows], lambda i: _trailing(rows[i].tid)),
        )

    def _add_allocations(self, rows: Events, at: NDArray[np.int64]) -> None:
        mine = [e.name == _MEMORY for e in rows]
        rows, at = list(compress(rows, mine)), at[mine]
        fine = at != BAD_NS
        if not fine.all():
            self.bad["of the allocator without a readable time"] += int((~fine).sum())
        args = [e.args for e in compress(rows, fine.tolist())]
        hosts = _longs([a.device_type for a in args]) == 0
        self.allocations.add(
            at_ns=at[fine],
            bytes=_longs([a.gained for a in args]),
            allocated_bytes=_longs([a.allocated for a in args]),
            reserved_bytes=_longs([a.reserved for a in args]),
            device=np.where(hosts, -1, _longs([a.device for a in args])),
        )

    def _messages(self, args: Sequence[Any]) -> NDArray[np.int32]:
        """Numbers of the messages that events carry, -1 for none."""
        result = np.full(len(args), -1, dtype=np.int32)
        for index in [i for i, a in enumerate(args) if a.collective or a.group]:
            result[index] = self.messages[_MESSAGE(args[index])]
        return result

    def _shapes(self, args: Sequence[Any]) -> NDArray[np.int32]:
        """Numbers of the shapes that operators carry, -1 for none."""
        result = np.full(len(args), -1, dtype=np.int32)
        if chosen := [i for i, a in enumerate(args) if a.dims is not NOTHING]:
            keys = [(bytes(args[i].dims), bytes(args[i].types)) for i in chosen]
            shapes = self.shapes
            result[chosen] = _ints([shapes[key] for key in keys])
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
        if part is None and len(self) > _CATEGORIES:
            return self[""]
        code = part[0] * 100 + part[1] if part else _UNKNOWN + 100 * len(self)
        self[word] = code
        return code


def _of(kind: type, kinds: list[type], events: Events) -> Events:
    return list(compress(events, map(is_, kinds, repeat(kind))))


def _ns(rows: Events) -> NDArray[np.int64]:
    """Starts in nanoseconds."""
    if isinstance(rows[0], Timed | Instant):
        us = _floats([e.ts for e in rows])
        if needs_text(us):
            raise LostDigits
        return nanoseconds(us)
    return nanoseconds_of_text([e.ts for e in rows])


def _told_apart(rows: Events, kind: NDArray[Any]) -> NDArray[Any]:
    """Kinds of host events; the category "Operator" may hold annotations too."""
    if not rows or "Operator" not in {e.cat for e in rows}:
        return kind
    marked = np.array([is_annotation(e.name) for e in rows])
    return np.where((kind == Host.OPERATOR) & marked, Host.ANNOTATION, kind)


def _external(args: Sequence[Any]) -> NDArray[np.int64]:
    """Numbers that join device events to operators, under either spelling."""
    result = _longs([a.external for a in args])
    if result.min(initial=0) < 0:
        result = np.where(result < 0, _longs([a.external_old for a in args]), result)
    return result


def _sequence(message: NDArray[np.int32], args: Sequence[Any]) -> NDArray[np.int64]:
    """Numbers of collectives in their groups, -1 where there is no message."""
    result = np.full(len(args), -1, dtype=np.int64)
    for index in np.flatnonzero(message >= 0).tolist():
        result[index] = args[index].seq
    return result


def _stated(values: list[int], otherwise: Callable[[int], int]) -> NDArray[np.int32]:
    """A device's or stream's number as the arguments state it, or by another way."""
    result = _longs(values)
    if result.min(initial=0) < 0:
        for index in np.flatnonzero(result < 0).tolist():
            result[index] = otherwise(index)
    if np.abs(result).max(initial=0) > _LARGEST:
        result = np.sign(result) * (np.abs(result) % _LARGEST)
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


def _ints(values: list[int]) -> NDArray[np.int32]:
    return np.fromiter(values, dtype=np.int32, count=len(values))


def _longs(values: list[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64, count=len(values))


def _floats(values: list[float]) -> NDArray[np.float64]:
    return np.fromiter(values, dtype=np.float64, count=len(values))
