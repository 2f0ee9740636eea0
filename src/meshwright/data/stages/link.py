"""Link: which survivors are exact duplicates, and which may be near ones of each other.

One unit over all of the scan. It holds `exact` (rows of `layout.DROPPED`, ascending) and, with near
dedup, the survivors that share a band key with another one: `candidates` (`CANDIDATE`, ascending)
and, for each group that is decided by itself, its `members` (`MEMBER`, ascending; their bounds are
`group_bounds`) and its buckets: the sets of members that share a key. Bucket i holds the members
numbered bucket_members[bucket_bounds[i]:bucket_bounds[i + 1]] of its group, and group g has the
buckets from group_buckets[g] to group_buckets[g + 1].
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.dedup.likely import likely, most_differing
from meshwright.data.dedup.links import (
    Buckets,
    buckets_of,
    columns_at_once,
    components,
    distinct,
    groups_of,
    reordered,
)
from meshwright.data.dedup.minhash import key_columns, sketches_of
from meshwright.data.dedup.shingles import mix
from meshwright.data.documents import bounds_of
from meshwright.data.reasons import CODES
from meshwright.data.stages.layout import DROPPED
from meshwright.data.stages.scanned import scanned
from meshwright.data.work.keys import key_of, keys_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from meshwright.data.stages.layout import Job
    from meshwright.data.work.store import Draft

    Numbers = NDArray[np.int64]
    Portion = tuple[Numbers, NDArray[np.uint64]]

CANDIDATE = np.dtype([("unit", "<i4"), ("survivor", "<i4"), ("group", "<i4")])
MEMBER = np.dtype([("unit", "<i4"), ("survivor", "<i4"), ("words", "<i4")])
GROUP_WORDS = 4 << 20  # of the candidates that one unit of `decide` gets, unless linked more


def link_units(job: Job) -> Mapping[int, int]:
    """One unit where anything is deduplicated, else none."""
    return {0: 1} if job.build.dedup.exact or job.build.dedup.near else {}


def key_link(job: Job, _number: int) -> str:
    """What it is made from: all scan units, and what counts as linked."""
    dedup = job.build.dedup
    read = keys_read(job.store, "scan", [unit.number for unit in job.units])
    near = [dedup.threshold] if dedup.near else []
    sources = [one.source for one in job.inputs] if dedup.near and dedup.scope == "source" else []
    return key_of(dedup.exact, near, sources, read)


def run_link(job: Job, number: int) -> None:
    """Makes the unit."""
    dedup = job.build.dedup
    survivors = _Survivors(job)
    with job.store.writing("link", number, key=key_link(job, number)) as draft:
        exact = _exact(survivors, dedup.memory_bytes) if dedup.exact else _no_pairs()
        draft.write_column("exact", survivors.dropped(exact))
        draft.facts.update({"exact": len(exact), "candidates": 0, "groups": 0})
        if dedup.near:
            buckets = _near(survivors, gone=exact[:, 0])
            buckets = likely(buckets, survivors.sketches, most=most_differing(dedup))
            _write_groups(draft, survivors, buckets)


class _Survivors:
    """The survivors of all scan units under one numbering, in the order of the input."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.units = [unit.number for unit in job.units]
        self.firsts = bounds_of(np.array([len(self._rows(u)) for u in self.units], dtype=np.int64))

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def _rows(self, unit: int) -> NDArray[Any]:
        return scanned(self.job, unit).survivors

    def places(self, numbers: Numbers) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The scan unit and the place in it of survivors."""
        which = np.searchsorted(self.firsts, numbers, side="right") - 1
        units = np.array(self.units, dtype=np.int32)[which]
        return units, (numbers - self.firsts[which]).astype(np.int32)

    def exact_keys(self) -> Iterator[Portion]:
        """The numbers and exact keys of all."""
        for first, unit in zip(self.firsts.tolist(), self.units, strict=False):
            keys = self._rows(unit)["key"]
            yield np.arange(first, first + len(keys)), keys

    def band_keys(self, first: int, last: int, *, gone: Numbers) -> Iterator[Portion]:
        """The numbers and band keys, in the columns asked for, of those with words but `gone`."""
        by_source = self.job.build.dedup.scope == "source"
        for start, unit in zip(self.firsts.tolist(), self.units, strict=False):
            bands = scanned(self.job, unit).bands
            here = bands[:, 0] != 0
            low, high = np.searchsorted(gone, [start, start + len(bands)])
            here[gone[low:high] - start] = False
            keys = bands[:, first:last][here]
            if by_source:
                keys ^= self._salt(unit)[here][:, None]
            numbers = np.flatnonzero(here) + start
            yield np.tile(numbers, last - first), keys.reshape(-1, 1, order="F")

    def _salt(self, unit: int) -> NDArray[np.uint64]:
        """Makes the keys of different sources differ."""
        found = scanned(self.job, unit)
        source = np.array([one.source for one in self.job.inputs], dtype=np.uint64)
        salt: NDArray[np.uint64] = source[
            found.documents["input"][found.survivors["row"]]
        ] + np.uint64(1)
        mix(salt)
        return salt

    def sketches(self, numbers: Numbers) -> NDArray[np.uint64]:
        """The sketches of survivors, in any order: [words, survivors]."""
        dedup = self.job.build.dedup
        found = np.empty((key_columns(dedup) - dedup.bands, len(numbers)), dtype=np.uint64)
        order = np.argsort(numbers)
        edges = np.searchsorted(numbers[order], self.firsts).tolist()
        for place, unit in enumerate(self.units):
            mine = order[edges[place] : edges[place + 1]]
            if len(mine):
                rows = scanned(self.job, unit).bands[numbers[mine] - self.firsts[place]]
                found[:, mine] = sketches_of(rows, dedup)
        return found

    def words(self, numbers: Numbers) -> NDArray[np.int32]:
        """How many words survivors (ascending) have."""
        found = [np.zeros(0, np.int32)]
        edges = np.searchsorted(numbers, self.firsts).tolist()
        for place, unit in enumerate(self.units):
            mine = numbers[edges[place] : edges[place + 1]] - self.firsts[place]
            if len(mine):
                found.append(self._rows(unit)["words"][mine])
        return np.concatenate(found)

    def dropped(self, pairs: Numbers) -> NDArray[Any]:
        """Pairs of a duplicate and what it repeats, ascending, as rows of `layout.DROPPED`."""
        rows = np.zeros(len(pairs), dtype=DROPPED)
        rows["unit"], rows["survivor"] = self.places(pairs[:, 0])
        rows["of_unit"], rows["of_survivor"] = self.places(pairs[:, 1])
        rows["reason"], rows["similarity"] = CODES["exact_duplicate"], 1
        return rows


def _no_pairs() -> Numbers:
    return np.zeros((0, 2), dtype=np.int64)


def _exact(survivors: _Survivors, memory_bytes: int) -> Numbers:
    """Each survivor whose text an earlier one has, and the earliest of those; [n, 2], ascending."""
    found = [_no_pairs()]
    for buckets in buckets_of(survivors.exact_keys, rows=len(survivors), memory_bytes=memory_bytes):
        first = np.repeat(buckets.members[buckets.bounds[:-1]], buckets.sizes)
        pairs = np.stack((buckets.members, first), axis=1)
        found.append(pairs[pairs[:, 0] != pairs[:, 1]])
    pairs = np.concatenate(found)
    return pairs[np.argsort(pairs[:, 0])]


def _near(survivors: _Survivors, *, gone: Numbers) -> Buckets:
    """The sets of survivors that share a band key, but for exact duplicates."""
    dedup = survivors.job.build.dedup
    memory, rows = dedup.memory_bytes, len(survivors) - len(gone)
    together = columns_at_once(documents=rows, columns=dedup.bands, memory_bytes=memory)

    def buckets() -> Iterator[Buckets]:
        for first in range(0, dedup.bands, together):
            last = min(first + together, dedup.bands)
            keys = partial(survivors.band_keys, first, last, gone=gone)
            yield from buckets_of(keys, rows=rows * (last - first), memory_bytes=memory)

    return distinct(buckets())


def _write_groups(draft: Draft, survivors: _Survivors, buckets: Buckets) -> None:
    """The candidates, and what each group needs to be decided."""
    numbers, place = np.unique(buckets.members, return_inverse=True)
    buckets = Buckets(place, buckets.bounds)
    words = survivors.words(numbers)
    group = groups_of(components(buckets, len(numbers)), words, target=GROUP_WORDS)
    candidates = np.zeros(len(numbers), dtype=CANDIDATE)
    candidates["unit"], candidates["survivor"] = survivors.places(numbers)
    candidates["group"] = group
    draft.write_column("candidates", candidates)
    groups = int(group.max(initial=-1)) + 1
    group_bounds = bounds_of(np.bincount(group, minlength=groups))
    order = np.argsort(group, kind="stable")
    members = np.zeros(len(order), dtype=MEMBER)
    members["unit"], members["survivor"] = candidates["unit"][order], candidates["survivor"][order]
    members["words"] = words[order]
    draft.write_column("members", members)
    draft.write_column("group_bounds", group_bounds)
    _write_buckets(draft, buckets, group=group, order=order, group_bounds=group_bounds)
    draft.facts.update({"candidates": len(numbers), "groups": groups})


def _write_buckets(
    draft: Draft, buckets: Buckets, *, group: Numbers, order: Numbers, group_bounds: Numbers
) -> None:
    """The buckets, those of one group together, with members numbered within their group."""
    own = group[buckets.members[buckets.bounds[:-1]]]
    buckets, own = reordered(buckets, by := np.argsort(own, kind="stable")), own[by]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    local = rank[buckets.members] - np.repeat(group_bounds[own], buckets.sizes)
    draft.write_column("bucket_members", local.astype(np.int32))
    draft.write_column("bucket_bounds", buckets.bounds)
    draft.write_column("group_buckets", np.searchsorted(own, np.arange(len(group_bounds))))
