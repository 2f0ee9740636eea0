"""Makes of events that hold any value what the quick decoder makes of good ones."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.diagnose.trace.events import (
    NO_ARGUMENTS,
    NO_LABEL,
    NO_MEMORY,
    NOTHING,
    UNSTATED,
    Arguments,
    Exact,
    ExactInstant,
    Label,
    Lenient,
    Memory,
    Named,
    Raw,
)

if TYPE_CHECKING:
    from meshwright.diagnose.trace.events import Events

_LONG = 2**63


def cleaned(events: Events) -> tuple[Events, int]:
    """The events with every lenient one cleaned, and how many are no events at all."""
    result: Events = []
    bad = 0
    for event in events:
        if not isinstance(event, msgspec.Struct):
            bad += 1
        elif not isinstance(event, Lenient):
            result.append(event)
        elif (made := _cleaned(event)) is not None:
            result.append(made)
        else:
            bad += not isinstance(event.ph, str)
    return result, bad


def _cleaned(event: Lenient) -> Any:
    """The event, or None if it is of a phase that is not read."""
    if event.ph == "X":
        return Exact(
            cat=_text(event.cat),
            name=_text(event.name),
            pid=_key(event.pid),
            tid=_key(event.tid),
            ts=event.ts,
            dur=_float(event.dur),
            args=_arguments(event.args),
        )
    if event.ph in ("i", "I"):
        return ExactInstant(name=_text(event.name), ts=event.ts, args=_memory(event.args))
    if event.ph == "M":
        return Named(name=_text(event.name), args=_label(event.args))
    return None


def _arguments(args: Any) -> Arguments:
    if not isinstance(args, dict) or not args:
        return NO_ARGUMENTS
    return Arguments(
        external=_int(args.get("External id")),
        device=_int(args.get("device")),
        stream=_int(args.get("stream")),
        correlation=_int(args.get("correlation")),
        bytes=_int(args.get("bytes")),
        collective=_text(args.get("Collective name")),
        in_elements=_int(args.get("In msg nelems")),
        out_elements=_int(args.get("Out msg nelems")),
        group_size=_int(args.get("Group size")),
        dtype=_text(args.get("dtype")),
        group=_text(args.get("Process Group Name")),
        description=_text(args.get("Process Group Description")),
        ranks=_text(args.get("Process Group Ranks")),
        seq=_int(args.get("Seq")),
        source_rank=_int(args.get("Src Rank")),
        target_rank=_int(args.get("Dst Rank")),
        external_old=_int(args.get("external id")),
        dims=_raw(args.get("Input Dims")),
        types=_raw(args.get("Input type")),
    )


def _memory(args: Any) -> Memory:
    if not isinstance(args, dict) or not args:
        return NO_MEMORY
    return Memory(
        gained=_int(args.get("Bytes"), unstated=0),
        allocated=_int(args.get("Total Allocated")),
        reserved=_int(args.get("Total Reserved")),
        device=_int(args.get("Device Id")),
        device_type=_int(args.get("Device Type")),
    )


def _label(args: Any) -> Label:
    if not isinstance(args, dict):
        return NO_LABEL
    return Label(name=_text(args.get("name")), labels=_text(args.get("labels")))


def _text(value: Any) -> str:
    """Text as it is; anything else as printed."""
    if isinstance(value, str):
        return value
    return "" if value is None else str(value)[:1000]


def _key(value: Any) -> int | str:
    return value if isinstance(value, int | str) else _text(value)


def _int(value: Any, *, unstated: int = -1) -> int:
    """A whole number of 64 bits, from a number or its text."""
    if isinstance(value, str):
        value = value.strip()
        number = int(value) if value.lstrip("-").isdecimal() and len(value) < 20 else unstated
    elif isinstance(value, int | float | Decimal):
        number = int(value) if -_LONG < value < _LONG else unstated
    else:
        number = unstated
    return number if -_LONG <= number < _LONG else unstated


def _float(value: Any) -> float:
    """A number, or `UNSTATED`."""
    try:
        return float(value) if isinstance(value, int | float | str | Decimal) else UNSTATED
    except (ValueError, OverflowError):
        return UNSTATED


def _raw(value: Any) -> Raw:
    if not value:
        return NOTHING
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return NOTHING
