"""Documents that hold pieces of test sets: found by runs of words that they share.

A document is contaminated when it shares `ngram_words` words in a row with one text of a test set
(13 by default, as Brown et al. 2020, arXiv 2005.14165, appendix C). Words are those of
`words.table`: case, punctuation and spaces do not count.

Each string of a test record is a text of its own; runs do not cross from one into another. A text
of fewer than `ngram_words` words, but at least 8, is sought whole (8 is the least that the same
appendix admits). Shorter ones are answers and names that any document may hold: they are passed
over and counted. Instructions that a test set repeats before each question are part of its texts:
name the fields that hold the questions if they should not count.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.noun import dataclass
from meshwright.data.documents import BATCH_BYTES, documents_of
from meshwright.data.settings import Limits, Source
from meshwright.data.source.jsonl import value_at
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.records import records_of
from meshwright.data.words.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.data.documents import Offsets, Verdict
    from meshwright.data.settings import Decontaminate
    from meshwright.data.source.unit import Input

    Hashes = NDArray[np.uint64]

LEAST_WORDS = 8  # of a text that is sought whole
_BASE = 0x9E3779B97F4A7C15  # odd, so that no word's share of a sum is lost
_SIEVE_BITS_PER_RUN = 16
_SIEVE_BITS = (16, 28)  # least and most, as powers of two
_DEEPEST = 32  # levels of a nested record


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One text of a test set: its file, the record (from 1) and the field it stands in."""

    file: str
    record: int
    field: str

    def __str__(self) -> str:
        return f"{self.file}, record {self.record}, {self.field}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Hashes of runs of `words` words, ascending, and the first item that holds each.

    `sieve` has a bit for every value of a hash's first bits, set where a run has that value: most
    words of a document are answered by it without a search.
    """

    words: int
    hashes: Hashes  # [runs]
    items: NDArray[np.int32]  # [runs]
    sieve: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What is sought: full runs, and short texts by their first words and as a whole."""

    items: tuple[Item, ...]
    too_short: Mapping[str, int]  # texts that were passed over, by file
    full: Runs
    heads: Runs  # first words of the short texts
    short: Mapping[int, Runs]  # by number of words


@dataclass(frozen=True, slots=True)
class Hits:
    """Every place where a run was found, in the order of the words."""

    document: NDArray[np.int64]
    word: NDArray[np.int64]  # where the run begins in the table
    item: NDArray[np.int32]


def index_of(settings: Decontaminate) -> Index:
    """The index of the test sets, built once in each process for the same files.

    InvalidInput when a file cannot be read, has none of the fields, or no text that can be sought.
    """
    source = Source(files=settings.files, name="test sets", documents="line")
    return _index_of(settings, list_inputs((source,)))


def judge(table: Table, index: Index) -> Verdict:
    """Drops documents that share a run of words with a test set."""
    return {"contaminated": first_items(table, index) >= 0}


def first_items(table: Table, index: Index) -> NDArray[np.int32]:
    """For each document the item of the first run that it shares, -1 where it shares none."""
    hits = find(table, index)
    items = np.full(len(table.documents), -1, dtype=np.int32)
    documents, first = np.unique(hits.document, return_index=True)
    items[documents] = hits.item[first]
    return items


def find(table: Table, index: Index) -> Hits:
    """Where documents share runs with test sets, and with which of their texts."""
    words = table.word_hash
    places, items = _search(run_hashes(words, index.full.words), index.full)
    found = [_within(table, places, items=items, runs=index.full)]
    if index.short:
        heads, _ = _search(run_hashes(words, index.heads.words), index.heads)
        for runs in index.short.values():
            places = heads[heads + runs.words <= len(words)]
            which, items = _search(run_hashes_at(words, places, runs.words), runs)
            found.append(_within(table, places[which], items=items, runs=runs))
    order = np.argsort(np.concatenate([hits.word for hits in found]), kind="stable")
    columns = zip(*((hits.document, hits.word, hits.item) for hits in found), strict=True)
    return Hits(*(np.concatenate(column)[order] for column in columns))


def run_hashes(words: Hashes, count: int) -> Hashes:
    """Hash of every run of `count` words: a polynomial in the hashes of its words, modulo 2^64.

    Runs of twice the length are made of two, so that 13 words take five steps.
    """
    total, covered = words[: max(len(words) - count + 1, 0)], 0
    power, length = words, 1  # hashes of every run of `length` words, a power of two
    while covered < count and len(total):
        if count & length:
            part = power[covered : covered + len(total)]
            total = part if not covered else total * _weight(length) + part
            covered += length
        power = power[:-length] * _weight(length) + power[length:]
        length *= 2
    return total


def run_hashes_at(words: Hashes, places: Offsets, count: int) -> Hashes:
    """The same of the runs that begin at `places`."""
    total = np.zeros(len(places), dtype=np.uint64)
    for step in range(count):
        total = total * _weight(1) + words[places + step]
    return total


def _weight(length: int) -> np.uint64:
    """What stands before a run when one of that many words follows it."""
    return np.uint64(pow(_BASE, length, 1 << 64))


def _search(hashes: Hashes, runs: Runs) -> tuple[Offsets, NDArray[np.int32]]:
    """Which of the hashes are among the runs, and the items of those."""
    bits = hashes >> np.uint64(64 - _sieve_bits(len(runs.hashes)))
    passed = np.flatnonzero(
        runs.sieve[bits >> np.uint64(3)] >> (bits & np.uint64(7)) & np.uint64(1)
    )
    wanted = hashes[passed]
    at = np.searchsorted(runs.hashes, wanted)
    at[at == len(runs.hashes)] = 0
    same = runs.hashes[at] == wanted
    return passed[same], runs.items[at[same]]


def _within(table: Table, places: Offsets, *, items: NDArray[np.int32], runs: Runs) -> Hits:
    """The hits that do not reach from one document into the next."""
    document = np.searchsorted(table.word_bounds, places, side="right") - 1
    inside = places + runs.words <= table.word_bounds[document + 1]
    return Hits(document[inside], places[inside], items[inside])


def _sieve_bits(runs: int) -> int:
    least, most = _SIEVE_BITS
    return min(max((runs * _SIEVE_BITS_PER_RUN).bit_length(), least), most)


def _runs(hashes: Hashes, items: NDArray[np.int32], words: int) -> Runs:
    """Sorted runs, each once, with the first item that holds it."""
    unique, first = np.unique(hashes, return_index=True)
    bits = _sieve_bits(len(unique))
    marks = np.zeros(1 << bits, dtype=np.bool_)
    marks[unique >> np.uint64(64 - bits)] = True
    sieve = np.packbits(marks, bitorder="little")
    return Runs(words=words, hashes=unique, items=items[first], sieve=sieve)


@lru_cache(maxsize=1)
def _index_of(settings: Decontaminate, inputs: tuple[Input, ...]) -> Index:
    collected = _Collected(settings.ngram_words)
    for source in inputs:
        before = len(collected.items)
        collected.too_short[source.path] = 0
        for batch in _batches(_texts(source, settings.fields)):
            collected.add(batch)
        if len(collected.items) == before:
            raise _nothing(source.path, settings)
    return collected.index()


class _Collected:
    """Runs of the texts read so far."""

    def __init__(self, ngram_words: int) -> None:
        self.ngram_words = ngram_words
        self.items: list[Item] = []
        self.too_short: dict[str, int] = {}
        self.runs: dict[int, list[tuple[Hashes, NDArray[np.int32]]]] = {}

    def add(self, batch: Sequence[tuple[Item, str]]) -> None:
        """Takes in some texts."""
        table = Table.of(documents_of([text for _, text in batch]))
        counts = np.diff(table.word_bounds)
        least = min(LEAST_WORDS, self.ngram_words)
        numbers = np.full(len(batch), -1, dtype=np.int32)
        for place in range(len(batch)):
            item = batch[place][0]
            if counts[place] < least:
                self.too_short[item.file] += 1
                continue
            numbers[place] = len(self.items)
            self.items.append(item)
        for length in sorted({min(int(n), self.ngram_words) for n in counts[numbers >= 0]}):
            whole = counts == length if length < self.ngram_words else counts >= length
            self._take(table, numbers, chosen=np.flatnonzero(whole), length=length)

    def _take(
        self, table: Table, numbers: NDArray[np.int32], *, chosen: Offsets, length: int
    ) -> None:
        """Every run of that many words of the chosen texts."""
        bounds = table.word_bounds
        places = np.concatenate([np.arange(bounds[i], bounds[i + 1] - length + 1) for i in chosen])
        owners = np.searchsorted(bounds, places, side="right") - 1
        hashes = run_hashes_at(table.word_hash, places, length)
        self.runs.setdefault(length, []).append((hashes, numbers[owners]))
        if length < self.ngram_words:
            heads = run_hashes_at(table.word_hash, places, LEAST_WORDS)
            self.runs.setdefault(0, []).append((heads, numbers[owners]))

    def index(self) -> Index:
        """All of it, ready to be searched."""
        made = {length: self._made(length) for length in sorted(self.runs)}
        full = made.pop(self.ngram_words, None) or _runs(*_NOTHING, self.ngram_words)
        heads = made.pop(0, None) or _runs(*_NOTHING, LEAST_WORDS)
        return Index(
            items=tuple(self.items),
            too_short=self.too_short,
            full=full,
            heads=heads,
            short=made,
        )

    def _made(self, length: int) -> Runs:
        hashes = np.concatenate([hashes for hashes, _ in self.runs[length]])
        items = np.concatenate([items for _, items in self.runs[length]])
        return _runs(hashes, items, length or LEAST_WORDS)


_NOTHING = (np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int32))


def _texts(source: Input, fields: Sequence[str]) -> Iterator[tuple[Item, str]]:
    """Every string of an input's records, or those of the named fields."""
    for number, record in enumerate(records_of(source, Limits()), 1):
        for field in fields or record:
            for text in _strings(value_at(record, field)):
                yield Item(file=source.path, record=number, field=field), text


def _strings(value: Any, depth: int = _DEEPEST) -> Iterator[str]:
    """The strings inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, dict)) and depth:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part, depth - 1)


def _batches(texts: Iterator[tuple[Item, str]]) -> Iterator[list[tuple[Item, str]]]:
    batch: list[tuple[Item, str]] = []
    size = 0
    for item, text in texts:
        batch.append((item, text))
        size += len(text)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _nothing(path: str, settings: Decontaminate) -> InvalidInput:
    least = min(LEAST_WORDS, settings.ngram_words)
    named = f" in the fields {', '.join(settings.fields)}" if settings.fields else ""
    finding = Finding(
        message=f"no text of {least} words or more{named}",
        file=path,
        key="decontaminate.fields" if named else "decontaminate.files",
        reason="a test set without such a text cannot be told from any other text",
    )
    hint = "name fields that it has, or none: then every string counts" if named else "leave it out"
    return InvalidInput([finding], hint=hint)
