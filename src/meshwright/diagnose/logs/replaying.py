"""The history of an allocator replayed: the moment of the peak and what was held then.

A history is a ring: it may begin in the middle of a run. What was held when it began is what is
held now, with everything that happened taken back.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from meshwright.base.noun import dataclass
from meshwright.diagnose.logs.categories import BEFORE, Frame, category_of, site_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FREES = ("free_requested", "free")
RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
NO_FRAMES = b"[]"
DEEPEST = 512  # frames of a stack that are read


class Held(NamedTuple):
    """A block in use: its address, the bytes that were asked for, its frames as JSON."""

    address: int
    size: int
    frames: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a history of one device says; bytes are those asked for."""

    peak_bytes: int
    peak_at_us: float | None
    reserved_bytes: int  # at the peak
    peak_reserved_bytes: int
    by_category: Mapping[str, int]
    by_site: Mapping[str, int]
    history: bool
    retries: int = 0
    ooms: int = 0
    allocations: int = 0
    unpaired: int = 0  # frees of addresses that nothing is known of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """Allocated and reserved bytes after each event, and where they are highest."""

    peak: int
    at: int  # events up to the peak
    reserved: int  # at the peak
    most_reserved: int


def replayed(
    trace: Sequence[Any], *, held: Sequence[Held], reserved_bytes: int, has_segments: bool
) -> Replayed:
    """The peak of one device; `held` and `reserved_bytes` are those at the end."""
    before = _there_before(trace, held)
    course = _course(trace, before, reserved_bytes, has_segments=has_segments)
    live = _live_at(trace[: course.at], held, before, trace)
    by_category, by_site = _told(live, trace)
    return Replayed(
        peak_bytes=course.peak,
        peak_at_us=_moment(trace, course.at),
        reserved_bytes=course.reserved,
        peak_reserved_bytes=course.most_reserved,
        by_category=by_category,
        by_site=by_site,
        history=bool(trace),
        retries=_retries(trace),
        ooms=sum(e.action == "oom" for e in trace),
        allocations=sum(e.action == "alloc" for e in trace),
        unpaired=_unpaired(trace) if not has_segments else 0,
    )


def _there_before(trace: Sequence[Any], held: Sequence[Held]) -> dict[int, int]:
    """Address -> size of the blocks that were in use when the history began.

    Those that are freed without having been allocated in it, and those of the end that it does not
    know.
    """
    live: dict[int, int] = {}
    before: dict[int, int] = {}
    for entry in trace:
        if entry.action == "alloc" and entry.addr is not None:
            live[entry.addr] = entry.size
        elif entry.action in FREES and entry.addr is not None:
            known = live.pop(entry.addr, None) is not None
            if not known and entry.addr not in before:
                before[entry.addr] = max(entry.size, 0)
    for block in held:
        if block.address not in live:
            before[block.address] = block.size
    return before


def _course(
    trace: Sequence[Any], before: Mapping[int, int], reserved_bytes: int, *, has_segments: bool
) -> _Course:
    change = sum(RESERVES.get(e.action, 0) * max(e.size, 0) for e in trace)
    reserved = max(reserved_bytes - change, 0) if has_segments else 0
    live: dict[int | None, int] = {}
    live.update(before.items())
    now = peak = sum(before.values())
    at, most, at_peak = 0, reserved, reserved
    for n, entry in enumerate(trace, start=1):
        size = max(entry.size, 0)
        if entry.action == "alloc" and entry.addr is not None:
            now += size - live.pop(entry.addr, 0)
            live[entry.addr] = size
        elif entry.action in FREES:
            now -= live.pop(entry.addr, 0)
        elif entry.action in RESERVES:
            reserved += RESERVES[entry.action] * size
            most = max(most, reserved)
        if now > peak:
            peak, at, at_peak = now, n, reserved
    return _Course(peak=peak, at=at, reserved=at_peak, most_reserved=most)


def _live_at(
    events: Sequence[Any], held: Sequence[Held], before: Mapping[int, int], trace: Sequence[Any]
) -> list[tuple[int, bytes | None]]:
    """(size, frames) of the blocks in use after some events; None: frames are not known."""
    known = {block.address: block.frames for block in held if block.address in before}
    freed = {e.addr for e in trace if e.action in FREES}
    live: dict[int, tuple[int, bytes | None]] = {
        address: (size, None if address in freed else _stack(known.get(address)))
        for address, size in before.items()
    }
    for entry in events:
        if entry.action == "alloc" and entry.addr is not None:
            live[entry.addr] = (max(entry.size, 0), bytes(entry.frames))
        elif entry.action in FREES:
            live.pop(entry.addr, None)
    return list(live.values())


def _stack(frames: bytes | None) -> bytes | None:
    """The frames of a block, None where it has none: then it was there before recording began."""
    return frames if frames and frames.strip() != NO_FRAMES else None


def _told(
    live: Iterable[tuple[int, bytes | None]], trace: Sequence[Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes by category and by site, largest first."""
    some = any(len(e.frames) > len(NO_FRAMES) for e in trace)
    kinds: dict[bytes, tuple[str, str]] = {}
    by_category: Counter[str] = Counter()
    by_site: Counter[str] = Counter()
    for size, raw in live:
        if raw is None or (raw.strip() == NO_FRAMES and not some):
            category, site = BEFORE, BEFORE
        else:
            if raw not in kinds:
                frames = _frames(raw)
                category = category_of(frames, others_have_frames=some)
                kinds[raw] = (category, site_of(frames))
            category, site = kinds[raw]
        by_category[category] += size
        by_site[site] += size
    return dict(by_category.most_common()), dict(by_site.most_common())


def _frames(raw: bytes) -> list[Frame]:
    try:
        decoded: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if not isinstance(decoded, list):
        return []
    return [_frame(f) for f in decoded[:DEEPEST] if isinstance(f, dict)]


def _frame(frame: dict[str, Any]) -> Frame:
    line = frame.get("line")
    return Frame(
        str(frame.get("filename", "")),
        line if isinstance(line, int) else 0,
        str(frame.get("name", "")),
    )


def _moment(trace: Sequence[Any], at: int) -> float | None:
    return trace[at - 1].time_us if at and trace[at - 1].time_us else None


def _retries(trace: Sequence[Any]) -> int:
    """Times that segments were freed, not by `empty_cache`, just before more was asked for."""
    count, freeing = 0, False
    for entry in trace:
        if entry.action in ("segment_free", "segment_unmap"):
            freeing = b"empty_cache" not in bytes(entry.frames)
        elif entry.action in ("segment_alloc", "segment_map", "oom"):
            count += freeing
            freeing = False
        elif entry.action == "alloc":
            freeing = False
    return count


def _unpaired(trace: Sequence[Any]) -> int:
    live: set[int | None] = set()
    count = 0
    for entry in trace:
        if entry.action == "alloc":
            live.add(entry.addr)
        elif entry.action in FREES:
            count += entry.addr not in live
            live.discard(entry.addr)
    return count
