"""Events of a trace file, decoded by type: what is not named here is skipped by the decoder."""

from __future__ import annotations

from typing import Any

import msgspec


class Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that an analysis reads."""

    external: Any = msgspec.field(name="External id", default=-1)
    external_old: Any = msgspec.field(name="external id", default=-1)
    correlation: Any = -1
    stream: Any = -1
    device: Any = -1
    bytes: Any = msgspec.field(name="bytes", default=-1)
    collective: Any = msgspec.field(name="Collective name", default=None)
    group: Any = msgspec.field(name="Process Group Name", default="")
    description: Any = msgspec.field(name="Process Group Description", default="")
    ranks: Any = msgspec.field(name="Process Group Ranks", default="")
    group_size: Any = msgspec.field(name="Group size", default=-1)
    dtype: Any = msgspec.field(name="dtype", default="")
    in_elements: Any = msgspec.field(name="In msg nelems", default=-1)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=-1)
    seq: Any = msgspec.field(name="Seq", default=-1)
    source_rank: Any = msgspec.field(name="Src Rank", default=-1)
    target_rank: Any = msgspec.field(name="Dst Rank", default=-1)
    dims: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    gained: Any = msgspec.field(name="Bytes", default=None)
    allocated: Any = msgspec.field(name="Total Allocated", default=-1)
    reserved: Any = msgspec.field(name="Total Reserved", default=-1)
    device_id: Any = msgspec.field(name="Device Id", default=-1)
    device_type: Any = msgspec.field(name="Device Type", default=-1)


NONE = Arguments()


class Event(msgspec.Struct, gc=False):
    """One event."""

    ph: str = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = 0
    tid: Any = 0
    ts: Any = 0
    dur: Any = 0
    args: Arguments | None = None
