"""documents.parquet, and what it adds up to: every document read, with what became of it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.documents import bounds_of
from meshwright.data.needs import need
from meshwright.data.reasons import CODES, REASONS
from meshwright.data.shards import names
from meshwright.data.shards.arrow import numbers, strings
from meshwright.data.shards.hashed import Written, digest_of, settle
from meshwright.data.shards.names import printable, shard_name
from meshwright.data.shards.tables import COLUMNS, writing_table
from meshwright.data.stages.arrange import shards_of
from meshwright.data.stages.chain import EXAMPLES, EXCERPT_CHARACTERS
from meshwright.data.stages.decide import dropped_of
from meshwright.data.stages.fates import fates_of
from meshwright.data.stages.lines import before, rejected
from meshwright.data.stages.scanned import scanned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from meshwright.data.shards.tables import Table
    from meshwright.data.stages.fates import Fates, Places
    from meshwright.data.stages.layout import Job
    from meshwright.data.stages.scanned import Scanned

_CLUSTERS = 20  # of duplicates that are named
_ROWS = 1 << 16  # of a row group, but the last


class Account:
    """Adds up documents, unit by unit, in their order; 4 bytes of memory for each survivor."""

    def __init__(self, job: Job) -> None:
        xxhash = need("xxhash", "hashing what was read")
        self.job = job
        self.counts: NDArray[np.int64] = np.zeros(len(REASONS), dtype=np.int64)
        self.documents: NDArray[np.int64] = np.zeros(len(job.inputs), dtype=np.int64)
        self.repaired: NDArray[np.int64] = np.zeros(len(job.inputs), dtype=np.int64)
        self.rejected = 0
        self.masked: Counter[str] = Counter()
        self.examples: dict[str, list[dict[str, Any]]] = {}
        self._content = [(xxhash.xxh3_128(), xxhash.xxh3_128()) for _ in job.inputs]
        counts = [len(job.store.column("scan", unit.number, "survivors")) for unit in job.units]
        self._bounds = bounds_of(np.array(counts, dtype=np.int64))
        self._repeated: NDArray[np.uint32] = np.zeros(self._bounds[-1], dtype=np.uint32)

    def add(self, number: int, fates: Fates) -> None:
        """Counts one scan unit."""
        self.counts += np.bincount(fates.reason, minlength=len(REASONS))
        self._add_inputs(fates)
        self._add_repeats(number)
        self._add_counts(self.job.store.record("scan", number) or {})
        self._add_examples(number, fates)

    def _add_inputs(self, fates: Fates) -> None:
        """What was read of each input, and the hashes of what passed."""
        read, survivors = fates.unit.documents, fates.unit.survivors
        passed = read["input"][survivors["row"]]
        for number in np.unique(read["input"]).tolist():
            rows = read[read["input"] == number]
            self.documents[number] += len(rows)
            places = np.stack([rows["line"], rows["bytes"]], axis=1, dtype=np.int64)
            of_read, of_passed = self._content[number]
            of_read.update(places.tobytes())
            of_passed.update(survivors["key"][passed == number].tobytes())

    def _add_repeats(self, number: int) -> None:
        dropped = dropped_of(self.job, number)
        kept = self._bounds[dropped["of_unit"]] + dropped["of_survivor"]
        np.add.at(self._repeated, kept, 1)

    def _add_counts(self, record: Mapping[str, Any]) -> None:
        """What the scan counted: lines set aside, texts repaired, matches masked."""
        for input, counts in record.get("inputs", {}).items():
            self.rejected += int(counts["rejected"])
            self.repaired[int(input)] += int(counts.get("repaired", 0))
        self.masked.update(record.get("masked", {}))

    def _add_examples(self, number: int, fates: Fates) -> None:
        """The first few of each reason; those of the scan know how their text begins."""
        record = self.job.store.record("scan", number) or {}
        ahead = before(self.job.store, number)
        for reason, found in record.get("examples", {}).items():
            held = self.examples.setdefault(reason, [])
            held += [
                {**one, "line": one["line"] + ahead.get(one["input"], 0)}
                for one in found[: EXAMPLES - len(held)]
            ]
        for reason in ("exact_duplicate", "near_duplicate", "mix"):
            held = self.examples.setdefault(reason, [])
            rows = np.flatnonzero(fates.reason == CODES[reason])[: EXAMPLES - len(held)]
            held += _examples(fates.unit, rows)

    def content(self, number: int) -> str:
        """A digest of what was read and kept of an input, in hexadecimal."""
        xxhash = need("xxhash", "hashing what was read")
        of_read, of_passed = self._content[number]
        return str(xxhash.xxh3_128_hexdigest(of_read.digest() + of_passed.digest()))

    def clusters(self) -> list[tuple[int, int, int]]:
        """Input, line and count of duplicates of the documents that were repeated most."""
        repeated = np.flatnonzero(self._repeated)
        largest = repeated[np.argsort(-self._repeated[repeated].astype(np.int64), kind="stable")]
        found = []
        for flat in largest[:_CLUSTERS].tolist():
            unit = int(np.searchsorted(self._bounds, flat, side="right")) - 1
            found_unit = scanned(self.job, unit)
            row = found_unit.survivors["row"][flat - self._bounds[unit]]
            place = found_unit.documents[row]
            found.append((int(place["input"]), int(place["line"]), int(self._repeated[flat])))
        return found


def _examples(unit: Scanned, rows: NDArray[np.intp]) -> list[dict[str, Any]]:
    """Survivors of a unit, by their rows in its `documents`: where they are, how they begin."""
    if not len(rows):
        return []
    found = unit.texts(np.searchsorted(unit.survivors["row"], rows))
    return [
        {
            "input": int(found.input[place]),
            "line": int(found.line[place]),
            "excerpt": found.beginning(place, EXCERPT_CHARACTERS),
        }
        for place in range(len(rows))
    ]


def write_documents(job: Job, folder: Path, places: Places) -> tuple[Account, dict[str, Written]]:
    """documents.parquet, and rejected.jsonl where anything could not be read."""
    account, words = Account(job), _Words(job)
    path = folder / names.DOCUMENTS
    with writing_table(path, COLUMNS) as table:
        waiting: list[dict[str, Any]] = []
        for unit in job.units:
            fates = fates_of(job, unit.number, places)
            account.add(unit.number, fates)
            waiting.append(words.columns(fates))
            if sum(len(columns["line"]) for columns in waiting) >= _ROWS:
                waiting = [_write(table, waiting, least=_ROWS)]
        _write(table, waiting, least=1)
    assert table.written is not None
    return account, {names.DOCUMENTS: table.written, **_write_rejected(job, folder)}


def _write(table: Table, parts: list[dict[str, Any]], *, least: int) -> dict[str, Any]:
    """Row groups of _ROWS rows wherever units end, the last of at least `least`; what is left."""
    arrow = need("pyarrow", "writing parquet")
    if not parts:
        return {}
    joined = {name: arrow.concat_arrays([part[name] for part in parts]) for name in COLUMNS}
    while len(joined["line"]) >= least:
        table.append({name: column.slice(0, _ROWS) for name, column in joined.items()})
        joined = {name: column.slice(_ROWS) for name, column in joined.items()}
    return joined


class _Words:
    """Turns codes and numbers into the words that documents.parquet has."""

    def __init__(self, job: Job) -> None:
        self.store = job.store
        self.inputs = strings([printable(found.path) for found in job.inputs])
        self.reasons = strings(list(REASONS))
        self.shards = strings([shard_name(*shard) for shard in shards_of(job.store)])
        self.languages = strings(_languages(job))

    def columns(self, fates: Fates) -> dict[str, Any]:
        """The rows of one unit."""
        read = fates.unit.documents
        return {
            "input": self.inputs.take(numbers(read["input"])),
            "line": numbers(read["line"]),
            "id": strings(list(fates.unit.ids) or [""] * len(fates)),
            "bytes": numbers(read["bytes"]),
            "language": self.languages.take(numbers(read["language"])),
            "reason": self.reasons.take(numbers(fates.reason)),
            "measured": _given(read["measured"]),
            "test_text": self._test_texts(fates),
            "duplicate_of_input": self.inputs.take(_given(fates.repeats_input)),
            "duplicate_of_line": _given(fates.repeats_line),
            "similarity": _given(fates.similarity),
            "shard": self.shards.take(_given(fates.shard)),
            "document": _given(fates.document),
            "tokens": _given(fates.tokens),
            "copies": numbers(fates.copies),
        }

    def _test_texts(self, fates: Fates) -> Any:
        """What each document shares with a test set, by name."""
        record = self.store.record("scan", fates.unit.number) or {}
        items = {int(number): printable(name) for number, name in record.get("items", {}).items()}
        known = np.array(sorted(items), dtype=np.int32)
        found = fates.unit.documents["item"]
        place = np.searchsorted(known, found).astype(np.int32)
        place[found < 0] = -1
        return strings([items[number] for number in known.tolist()]).take(_given(place))


def _given(values: NDArray[Any]) -> Any:
    """Values, those below 0 as null."""
    return numbers(values, missing=values < 0)


def _languages(job: Job) -> list[str]:
    """ISO codes by number; 0 is what was not asked."""
    if job.build.language is None:
        return [""]
    from meshwright.data.clean.language import CODES

    return list(CODES)


def _write_rejected(job: Job, folder: Path) -> dict[str, Written]:
    """One line for each that could not be read, in the order of the input; no file for none."""
    path, part = folder / names.REJECTED, folder / f"{names.REJECTED}.part"
    with part.open("wb") as file:
        for unit in job.units:
            file.writelines(rejected(job, unit.number))
    if not part.stat().st_size:
        part.unlink()
        return {}
    settle(part)
    part.replace(path)
    return {names.REJECTED: digest_of(path)}
