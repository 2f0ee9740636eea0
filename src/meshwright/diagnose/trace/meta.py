"""What a trace file says of its run, from the metadata before and after its events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.diagnose.trace.columns import Group, Meta

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_RANK = re.compile(r"\brank[ _:#-]?(\d{1,7})\b", re.IGNORECASE)
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})\b')
_MOST_RANKS = 1 << 20


class _Said(msgspec.Struct):
    """The keys of a trace file that are read."""

    deviceProperties: Any = None  # noqa: N815 - names in the file
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    record_shapes: Any = None
    with_stack: Any = None
    profile_memory: Any = None
    host_name: Any = None
    meshwright: Any = None
    traceEvents: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_decoder = msgspec.json.Decoder(_Said)


def said(text: bytes) -> dict[str, Any]:
    """What an object of metadata says; raises `msgspec.DecodeError` or `RecursionError`."""
    return msgspec.structs.asdict(_decoder.decode(text))


def base_in(text: bytes) -> dict[str, Any]:
    """The one number that times depend on, from text that is no JSON."""
    found = _BASE.search(text)
    return {"baseTimeNanoseconds": int(found[1])} if found else {}


def meta_of(parts: Iterable[Mapping[str, Any]], *, processes: Iterable[str]) -> Meta:
    """`Meta` from the metadata in its parts, later ones first, and the names of processes."""
    known: dict[str, Any] = {}
    for part in parts:
        known |= {name: value for name, value in part.items() if value is not None}
    info = _mapping(known.get("distributedInfo"))
    devices = known.get("deviceProperties")
    gpus = tuple(
        _text(_mapping(d).get("name")) for d in (devices if isinstance(devices, list) else ())
    )
    own = known.get("meshwright")
    return Meta(
        rank=_rank(info, processes),
        world_size=_number(info.get("world_size")),
        backend=_text(info.get("backend")) or None,
        nccl_version=_text(info.get("nccl_version")) or None,
        gpu=gpus[0] if gpus else None,
        gpus=gpus,
        groups=_groups(info.get("pg_config")),
        host=_text(known.get("host_name")),
        base_ns=_base(known.get("baseTimeNanoseconds")),
        record_shapes=_flag(known.get("record_shapes")),
        with_stack=_flag(known.get("with_stack")),
        profile_memory=_flag(known.get("profile_memory")),
        own=own if isinstance(own, dict) else None,
    )


def _rank(info: Mapping[str, Any], processes: Iterable[str]) -> int | None:
    """The rank that the file states, else the one that its processes are all named after."""
    if (stated := _number(info.get("rank"))) is not None:
        return stated
    named = {int(found[1]) for name in processes if (found := _RANK.search(name))}
    return named.pop() if len(named) == 1 else None


def _groups(entries: Any) -> tuple[Group, ...]:
    """Process groups; text stands for a list where Kineto wrote the file itself."""
    if isinstance(entries, str):
        entries = _decoded(entries)
    if not isinstance(entries, list):
        return ()
    return tuple(_group(entry) for entry in entries if isinstance(entry, dict))


def _group(entry: Mapping[str, Any]) -> Group:
    ranks = _ranks(entry.get("ranks"))
    size = _number(entry.get("pg_size"))
    return Group(
        name=_text(entry.get("pg_name")),
        description=_text(entry.get("pg_desc")),
        ranks=ranks,
        size=len(ranks) if size is None else size,
    )


def _ranks(value: Any) -> tuple[int, ...]:
    """Ranks from a list, or from text such as "[0, 1, 2]"; none if the text was cut ("...")."""
    if isinstance(value, list):
        numbers = [_number(rank) for rank in value[:_MOST_RANKS]]
        return tuple(n for n in numbers if n is not None)
    if not isinstance(value, str) or "..." in value:
        return ()
    return tuple(int(n) for n in re.findall(r"\d{1,7}", value[: 8 * _MOST_RANKS]))


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = _decoded(value)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:10_000]
    return str(value) if isinstance(value, int | float) else ""


def _number(value: Any) -> int | None:
    """A whole number of a sane size, from a number or its text."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    sane = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return value if sane else None


def _base(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0


def _flag(value: Any) -> bool:
    return value not in (None, 0, False, "0", "false", "False", "")
