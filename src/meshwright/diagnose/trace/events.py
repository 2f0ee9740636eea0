"""Events of a trace file, decoded by type: what is not named here is skipped by the decoder.

There are two ways to decode the same text. The quick one knows every field's type and makes
nothing of events that no analysis reads; it refuses text that breaks its word. The lenient one
takes any value anywhere, and `cleaning` makes of it what the quick one would have made.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

import msgspec

Raw = msgspec.Raw
field = msgspec.field
NOTHING = Raw(b"")
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
UNSTATED = float("nan")  # a time that the event does not state


class Arguments(msgspec.Struct, gc=False, frozen=True):
    """The arguments of an event that an analysis reads, in the order in which Kineto writes."""

    external: Long = field(name="External id", default=-1)
    device: Long = -1
    stream: Long = -1
    correlation: Long = -1
    bytes: Long = -1
    collective: str = field(name="Collective name", default="")
    in_elements: Long = field(name="In msg nelems", default=-1)
    out_elements: Long = field(name="Out msg nelems", default=-1)
    group_size: Long = field(name="Group size", default=-1)
    dtype: str = ""
    group: str = field(name="Process Group Name", default="")
    description: str = field(name="Process Group Description", default="")
    ranks: str = field(name="Process Group Ranks", default="")
    seq: Long = field(name="Seq", default=-1)
    source_rank: Long = field(name="Src Rank", default=-1)
    target_rank: Long = field(name="Dst Rank", default=-1)
    external_old: Long = field(name="external id", default=-1)
    dims: Raw = field(name="Input Dims", default=NOTHING)
    types: Raw = field(name="Input type", default=NOTHING)


class Memory(msgspec.Struct, gc=False, frozen=True):
    """What an event of the allocator states."""

    gained: Long = field(name="Bytes", default=0)
    allocated: Long = field(name="Total Allocated", default=-1)
    reserved: Long = field(name="Total Reserved", default=-1)
    device: Long = field(name="Device Id", default=-1)
    device_type: Long = field(name="Device Type", default=-1)


class Label(msgspec.Struct, gc=False, frozen=True):
    """What a metadata event says of a process or thread."""

    name: str = ""
    labels: str = ""


NO_ARGUMENTS, NO_MEMORY, NO_LABEL = Arguments(), Memory(), Label()


class Timed(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration. Times are microseconds as the file states them."""

    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = UNSTATED
    dur: float = UNSTATED
    args: Arguments = NO_ARGUMENTS


class Exact(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A `Timed` whose `ts` is still text: more digits than a float has."""

    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Raw = NOTHING
    dur: float = UNSTATED
    args: Arguments = NO_ARGUMENTS


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event without duration; those of the allocator are read."""

    name: str = ""
    ts: float = UNSTATED
    args: Memory = NO_MEMORY


class ExactInstant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An `Instant` whose `ts` is still text."""

    name: str = ""
    ts: Raw = NOTHING
    args: Memory = NO_MEMORY


class Named(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """A metadata event: names of processes and threads."""

    name: str = ""
    args: Label = NO_LABEL


class Lenient(msgspec.Struct, gc=False):
    """Any event; every value is what the file holds."""

    ph: Any = None
    cat: Any = ""
    name: Any = ""
    pid: Any = 0
    tid: Any = 0
    ts: Any = None
    dur: Any = None
    args: Any = None


_PHASES = "sftIPCBEbenpNODSTFRcv(),"  # flows, samples, counters, begins and ends, objects
Events = list[Any]


@cache
def quick_decoder(*, exact: bool, strict: bool = True) -> msgspec.json.Decoder[Events]:
    """A decoder of lists of `Timed`, `Instant` and `Named` (or their exact kin).

    One that is not strict takes text for numbers.
    """
    skipped = (
        msgspec.defstruct(f"Skipped{n}", [], tag_field="ph", tag=word, gc=False)
        for n, word in enumerate(_PHASES)
    )
    read = (Exact, ExactInstant) if exact else (Timed, Instant)
    kinds: Any = reduce(or_, (*read, Named, *skipped))
    return msgspec.json.Decoder(list[kinds], strict=strict)


@cache
def leniently() -> msgspec.json.Decoder[Events]:
    """A decoder of lists of `Lenient`, and of whatever else stands among events."""
    kinds: Any = Lenient | int | str | float | bool | list[Any] | None
    return msgspec.json.Decoder(list[kinds], float_hook=_number)


def _number(text: str) -> Decimal | None:
    """A number with all its digits; none where its exponent has too many."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return None
