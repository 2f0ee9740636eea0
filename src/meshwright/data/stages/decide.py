"""Decide: which linked survivors go. A unit is a group of `link`, its result `dropped`.

`dropped` has rows of `layout.DROPPED`, ascending by unit and survivor.
"""

from __future__ import annotations

import contextlib
from itertools import pairwise
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.dedup.greedy import repeats
from meshwright.data.dedup.likely import most_differing
from meshwright.data.dedup.links import Buckets
from meshwright.data.dedup.minhash import key_columns, sketches_of
from meshwright.data.documents import bounds_of
from meshwright.data.reasons import CODES
from meshwright.data.stages.layout import DROPPED
from meshwright.data.stages.link import link_units
from meshwright.data.stages.scanned import scanned
from meshwright.data.stages.shingle import candidates_of, rows_of
from meshwright.data.work.keys import key_of, keys_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from meshwright.data.dedup.greedy import Repeat
    from meshwright.data.documents import Mask
    from meshwright.data.stages.layout import Job


def decide_units(job: Job) -> Mapping[int, int]:
    """The groups, with the words of each."""
    if not job.build.dedup.near:
        return {}
    words = np.asarray(job.store.column("link", 0, "members")["words"], dtype=np.int64)
    edges = job.store.column("link", 0, "group_bounds").tolist()
    pairs = enumerate(pairwise(edges))
    return {number: int(words[first:last].sum()) for number, (first, last) in pairs}


def key_decide(job: Job, number: int) -> str:
    """What a unit is made from: its members, their shingles, how they are linked, the threshold."""
    members, buckets = _members(job, number), _buckets(job, number)
    read = keys_read(job.store, "shingle", np.unique(members["unit"]).tolist())
    linked = [buckets.members.tobytes(), buckets.bounds.tobytes()]
    return key_of(job.build.dedup.threshold, members.tobytes(), linked, read)


def run_decide(job: Job, number: int) -> None:
    """Makes the unit of one group."""
    members = _members(job, number)
    with _sets_of(job, members) as sets:
        found = repeats(
            _buckets(job, number),
            sets,
            threshold=job.build.dedup.threshold,
            most_differing=most_differing(job.build.dedup),
        )
        rows = _dropped(members, found)
    with job.store.writing("decide", number, key=key_decide(job, number)) as draft:
        draft.write_column("dropped", rows)
        draft.facts.update({"members": len(members), "dropped": len(rows)})


def dropped_of(job: Job, scan_unit: int) -> NDArray[Any]:
    """The duplicates among the survivors of a scan unit: rows of `layout.DROPPED`, ascending."""
    if not link_units(job):
        return np.zeros(0, dtype=DROPPED)
    parts = [rows_of(job.store.column("link", 0, "exact"), scan_unit)]
    if job.build.dedup.near:
        groups = np.unique(candidates_of(job, scan_unit)["group"]).tolist()
        columns = (job.store.column("decide", group, "dropped") for group in groups)
        parts += [rows_of(column, scan_unit) for column in columns]
    rows: NDArray[Any] = np.concatenate(parts)
    return np.sort(rows, order="survivor")


def kept_of(job: Job, scan_unit: int) -> Mask:
    """Which survivors of a scan unit are no duplicates [survivors]."""
    keep: Mask = np.ones(len(scanned(job, scan_unit).survivors), dtype=np.bool_)
    keep[dropped_of(job, scan_unit)["survivor"]] = False
    return keep


def _members(job: Job, number: int) -> NDArray[Any]:
    """The members of a group, as `link.MEMBER`."""
    first, last = job.store.column("link", 0, "group_bounds")[number : number + 2]
    return np.array(job.store.column("link", 0, "members")[first:last])


def _buckets(job: Job, number: int) -> Buckets:
    """The buckets of a group, of numbers of its members."""
    first, last = job.store.column("link", 0, "group_buckets")[number : number + 2]
    bounds = np.asarray(job.store.column("link", 0, "bucket_bounds")[first : last + 1])
    members = job.store.column("link", 0, "bucket_members")[bounds[0] : bounds[-1]]
    return Buckets(np.asarray(members, dtype=np.int64), bounds - bounds[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sets:
    """The sketches of a group's members, and their sets of shingles end to end."""

    sketches: NDArray[np.uint64]
    hashes: _Room
    bounds: tuple[int, ...]

    def shingles(self, document: int) -> NDArray[np.uint64]:
        return self.hashes.read(self.bounds[document], self.bounds[document + 1])


@contextlib.contextmanager
def _sets_of(job: Job, members: NDArray[Any]) -> Iterator[_Sets]:
    """The sets of a group, in memory, or in a file without a name if they fill half of what may be.

    They are brought together because a group may come from more units than files can be open.
    """
    dedup = job.build.dedup
    sketches = np.zeros((len(members), key_columns(dedup) - dedup.bands), dtype=np.uint64)
    sizes = np.zeros(len(members), dtype=np.int64)
    for mine, unit, survivors in _by_unit(members):
        sizes[mine] = np.diff(job.store.column("shingle", unit, "bounds"))[
            _places(job, unit, survivors)
        ]
        sketches[mine] = sketches_of(scanned(job, unit).bands[survivors], dedup).T
    bounds = bounds_of(sizes)
    with _room(job, int(bounds[-1])) as hashes:
        for mine, unit, survivors in _by_unit(members):
            column = np.asarray(job.store.column("shingle", unit, "hashes"))
            places = _places(job, unit, survivors)
            starts = job.store.column("shingle", unit, "bounds")[places].tolist()
            for start, first, last in zip(starts, bounds[mine], bounds[mine + 1], strict=True):
                hashes.write(first, column[start : start + last - first])
        yield _Sets(sketches=sketches, hashes=hashes, bounds=tuple(bounds.tolist()))


def _by_unit(members: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], int, NDArray[np.int32]]]:
    """The members of each scan unit: their numbers, the unit, their places among its survivors."""
    units, firsts = np.unique(members["unit"], return_index=True)
    for unit, (first, last) in zip(
        units.tolist(), pairwise([*firsts.tolist(), len(members)]), strict=True
    ):
        yield np.arange(first, last), unit, np.ascontiguousarray(members["survivor"][first:last])


def _places(job: Job, unit: int, survivors: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where survivors stand in the unit of their shingles."""
    return np.searchsorted(job.store.column("shingle", unit, "survivors"), survivors)


class _Room(Protocol):
    """A place for shingles, by their number."""

    def write(self, first: int, hashes: NDArray[np.uint64]) -> None:
        """Puts shingles there, the first of them at number `first`."""

    def read(self, first: int, last: int) -> NDArray[np.uint64]:
        """Those numbered from `first` up to `last`."""


class _Memory:
    """Room in memory."""

    def __init__(self, count: int) -> None:
        self._hashes = np.empty(count, dtype=np.uint64)

    def write(self, first: int, hashes: NDArray[np.uint64]) -> None:
        self._hashes[first : first + len(hashes)] = hashes

    def read(self, first: int, last: int) -> NDArray[np.uint64]:
        return self._hashes[first:last]


class _File:
    """Room in a file without a name; read set by set, as pages of a mapping would count as ours."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, first: int, hashes: NDArray[np.uint64]) -> None:
        self._file.seek(8 * first)
        self._file.write(hashes.tobytes())

    def read(self, first: int, last: int) -> NDArray[np.uint64]:
        self._file.seek(8 * first)
        return np.frombuffer(self._file.read(8 * (last - first)), dtype=np.uint64)


@contextlib.contextmanager
def _room(job: Job, count: int) -> Iterator[_Room]:
    """Room for so many shingles."""
    if count * 8 <= job.build.dedup.memory_bytes // 2:
        yield _Memory(count)
    else:
        with TemporaryFile(dir=job.store.root) as file:
            yield _File(file)


def _dropped(members: NDArray[Any], found: Iterable[Repeat]) -> NDArray[Any]:
    """Repeats as rows of `layout.DROPPED`."""
    pairs = list(found)
    rows = np.zeros(len(pairs), dtype=DROPPED)
    gone = members[[one.document for one in pairs]]
    of = members[[one.of for one in pairs]]
    rows["unit"], rows["survivor"] = gone["unit"], gone["survivor"]
    rows["of_unit"], rows["of_survivor"] = of["unit"], of["survivor"]
    rows["reason"] = CODES["near_duplicate"]
    rows["similarity"] = [one.similarity for one in pairs]
    return rows
