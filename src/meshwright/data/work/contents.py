"""Whether a file is still the same when only its time has changed, as after a copy or a checkout.

Each scan unit takes a digest of its share of the bytes of every local file that it reads. A file of
the recorded size and another time is read again and compared with these; when it is the same it
keeps the stamp that is recorded, so that every key still fits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from meshwright.data.needs import need
from meshwright.data.source.opening import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.data.source.unit import Input, Unit
    from meshwright.data.stages.layout import Job

_CHUNK_BYTES = 4 << 20


def contents_read(job: Job, number: int) -> dict[str, list[Any]]:
    """By input of a scan unit: its stamp, this unit's place among those that read it, a digest."""
    found: dict[str, list[Any]] = {}
    for input in sorted({span.input for span in job.units[number].spans}):
        source, units = job.inputs[input], _units_of(job.units, input)
        if not is_url(source.path):
            place, count = number - units.start, len(units)
            digest = _share_digest(source, place, count)
            found[str(input)] = [source.stamp, place, count, digest]
    return found


def content_of(job: Job, input: int) -> dict[str, Any]:
    """The digest of a file from those of its shares, which finished scan units hold."""
    digests = [entry[3] for entry in _entries(job, input)]
    units = len(_units_of(job.units, input))
    if len(digests) != units or is_url(job.inputs[input].path):
        return {}
    return {"shares": units, "content": _joined(digests)}


def settled(job: Job, known: Iterable[Mapping[str, Any]]) -> Job:
    """The job with the stamps that `known` (`recorded` inputs) has for files that are the same."""
    by_path: dict[str, list[Mapping[str, Any]]] = {}
    for entry in known:
        by_path.setdefault(str(entry.get("path")), []).append(entry)
    inputs = tuple(
        replace(found, stamp=_stamp(job, number, by_path.get(found.path, ())))
        for number, found in enumerate(job.inputs)
    )
    return replace(job, inputs=inputs)


def recorded(job: Job, seen: Sequence[str], *, with_content: bool) -> list[dict[str, Any]]:
    """The inputs for a record. `seen` are their present stamps, which `settled` may have replaced;
    `with_content` needs the scan to be done."""
    return [
        {
            "path": found.path,
            "bytes": found.bytes,
            "stamp": found.stamp,
            "seen": stamp,
            **(content_of(job, number) if with_content else {}),
        }
        for number, (found, stamp) in enumerate(zip(job.inputs, seen, strict=True))
    ]


def _stamp(job: Job, number: int, entries: Iterable[Mapping[str, Any]]) -> str:
    """The recorded stamp of an input that is what it was, else its present one."""
    found = job.inputs[number]
    same = [entry for entry in entries if entry.get("bytes") == found.bytes]
    for entry in same:
        if found.stamp in (entry.get("stamp"), entry.get("seen")):
            return str(entry["stamp"])
    for entry in same:
        if not is_url(found.path) and _is_same(job, number, entry):
            return str(entry["stamp"])
    return found.stamp


def _is_same(job: Job, number: int, entry: Mapping[str, Any]) -> bool:
    """Whether the content of a file is that of a record: all of it, or all that was read of it."""
    found = job.inputs[number]
    if not found.bytes:
        return True
    if "content" in entry:
        count = int(entry["shares"])
        shares = (_share_digest(found, place, count) for place in range(count))
        return bool(entry["content"] == _joined(shares))
    read = [share for share in _entries(job, number) if share[0] == entry.get("stamp")]
    return bool(read) and all(
        _share_digest(found, place, count) == digest for _, place, count, digest in read
    )


def _entries(job: Job, number: int) -> list[list[Any]]:
    """What the finished scan units hold of an input, in their order."""
    found = []
    for unit in _units_of(job.units, number):
        record = job.store.record("scan", unit) or {}
        entry = record.get("contents", {}).get(str(number))
        if entry is not None:
            found.append(entry)
    return found


def _units_of(units: Sequence[Unit], number: int) -> range:
    """The units that read an input; they follow each other, for units keep the inputs' order."""
    first = bisect_left(units, number, key=lambda unit: unit.spans[-1].input)
    return range(first, bisect_right(units, number, key=lambda unit: unit.spans[0].input))


def _share_digest(found: Input, place: int, count: int) -> str:
    """The digest of one of `count` equal shares of a local file's bytes."""
    start, stop = (found.bytes * edge // count for edge in (place, place + 1))
    digest = need("xxhash", "comparing input").xxh3_128()
    with open(found.path, "rb") as file:
        file.seek(start)
        while start < stop and (part := file.read(min(_CHUNK_BYTES, stop - start))):
            digest.update(part)
            start += len(part)
    return str(digest.hexdigest())


def _joined(digests: Iterable[str]) -> str:
    return blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()
