"""Whether a file is still the same when only its time has changed, as after a copy or a checkout.

Each scan unit takes a digest of its stretch of every local file that it reads. A file of the
recorded size and another time is read again and compared with these; when it is the same it goes by
the stamp that is recorded, so that every key still fits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from meshwright.data.needs import need
from meshwright.data.source.division import is_whole
from meshwright.data.source.opening import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.data.source.unit import Span, Unit
    from meshwright.data.stages.layout import Job

_CHUNK_BYTES = 4 << 20


def contents_read(job: Job, number: int) -> dict[str, list[Any]]:
    """By input of a scan unit: its version, the stretch of it that is this unit's, its digest."""
    found: dict[str, list[Any]] = {}
    for span in job.units[number].spans:
        source = job.inputs[span.input]
        if span.part is None and not is_url(source.path):  # not of a sample
            start, stop = _stretch(job, number, span)
            digest = _digest(source.path, start, stop)
            found[str(span.input)] = [source.version, start, stop, digest]
    return found


def settled(job: Job, known: Iterable[Mapping[str, Any]]) -> Job:
    """The job with inputs that are what `known` (from `recorded`) holds under that version."""
    by_path: dict[str, list[Mapping[str, Any]]] = {}
    for entry in known:
        by_path.setdefault(str(entry.get("path")), []).append(entry)
    inputs = tuple(
        replace(found, earlier=_version(job, number, by_path.get(found.path, ())))
        for number, found in enumerate(job.inputs)
    )
    return replace(job, inputs=inputs)


def recorded(job: Job, *, with_content: bool) -> list[dict[str, Any]]:
    """The inputs for a record; `with_content` needs the scan to be done."""
    return [
        {
            "path": found.path,
            "bytes": found.bytes,
            "stamp": found.version,
            "seen": found.stamp,
            **(_content(job, number) if with_content else {}),
        }
        for number, found in enumerate(job.inputs)
    ]


def _content(job: Job, number: int) -> dict[str, str]:
    """The digest of a file from those of its stretches, which finished scan units hold."""
    digests = [entry[3] for entry in _entries(job, number)]
    is_all = digests and len(digests) == len(_units_of(job.units, number))
    return {"content": _joined(digests)} if is_all else {}


def _version(job: Job, number: int, entries: Iterable[Mapping[str, Any]]) -> str:
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
        stretches = [
            _stretch(job, unit, span)
            for unit in _units_of(job.units, number)
            for span in job.units[unit].spans
            if span.input == number
        ]
        digests = (_digest(found.path, start, stop) for start, stop in stretches)
        return bool(entry["content"] == _joined(digests))
    read = [one for one in _entries(job, number) if one[0] == entry.get("stamp")]
    return bool(read) and all(
        _digest(found.path, start, stop) == digest for _, start, stop, digest in read
    )


def _stretch(job: Job, number: int, span: Span) -> tuple[int, int]:
    """The bytes of a file that are a unit's: those it reads, or its share of a parquet file."""
    source = job.inputs[span.input]
    if source.format == "parquet":
        units = _units_of(job.units, span.input)
        place, count = number - units.start, len(units)
        return source.bytes * place // count, source.bytes * (place + 1) // count
    if source.compression or is_whole(source):
        return 0, source.bytes
    return span.start, span.stop


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


def _digest(path: str, start: int, stop: int) -> str:
    """Of the bytes start..stop of a local file."""
    digest = need("xxhash", "comparing input").xxh3_128()
    with open(path, "rb") as file:
        file.seek(start)
        while start < stop and (part := file.read(min(_CHUNK_BYTES, stop - start))):
            digest.update(part)
            start += len(part)
    return str(digest.hexdigest())


def _joined(digests: Iterable[str]) -> str:
    return blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()
