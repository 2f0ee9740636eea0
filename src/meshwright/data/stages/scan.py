"""Scan: reads a portion of the input, cleans and judges it, and keeps what the later stages need.

A unit holds, beside its record: `documents` (every document read, with the reason it was dropped),
`survivors`, `blocks` and text.zst (their cleaned text), `bands` (keys of near duplicates), `ids`
with `id_bounds` where the input names its documents, and rejected.jsonl (what could not be read).
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.documents import bounds_of
from meshwright.data.needs import need
from meshwright.data.shards.names import REJECTED, printable
from meshwright.data.stages.chain import Batch, Tally, chain_of, run_chain
from meshwright.data.stages.layout import BLOCK, DOCUMENT, SURVIVOR
from meshwright.data.stages.scanned import TEXT
from meshwright.data.work.contents import contents_read
from meshwright.data.work.keys import key_of
from meshwright.data.work.libraries import scan_versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from meshwright.data.settings import Build
    from meshwright.data.source.rejects import Rejected
    from meshwright.data.source.unit import Unit
    from meshwright.data.stages.chain import Step
    from meshwright.data.stages.layout import Job
    from meshwright.data.work.store import Draft

_LEVEL = 1  # of zstd: the text is read twice at most


def key_scan(job: Job, number: int) -> str:
    """What a scan unit is made from: its stretch of the inputs, and the settings of its steps."""
    unit, build = job.units[number], job.build
    near = build.dedup
    return key_of(
        [_input_parts(job, span.input) for span in unit.spans],
        [[span.input, span.start, span.stop] for span in unit.spans],
        build.limits.document_bytes,  # the others only stop a build
        [build.clean, build.language, build.pii],
        [build.gopher_quality, build.gopher_repetition, build.c4, build.fineweb],
        [build.decontaminate, [digest for name, digest in job.digests if name != "tokenizer"]],
        [near.near, near.shingle_words, near.bands, near.rows] if near.near else [],
        scan_versions(build),
    )


def _input_parts(job: Job, number: int) -> list[Any]:
    """How one input is read, and which state of it."""
    found = job.inputs[number]
    source = job.build.sources[found.source]
    how = [found.format, found.compression, source.text_field, source.id_field, source.documents]
    return [found.path, found.version, found.bytes, *how]


def run_scan(job: Job, number: int) -> None:
    """Makes one scan unit."""
    unit = job.units[number]
    with job.store.writing("scan", number, key=key_scan(job, number)) as draft:
        with draft.opened(TEXT) as text, draft.opened(REJECTED) as rejected:
            sink = _Sink(job, text)
            _read_through(job, unit, sink=sink, reject=_rejecting(job, rejected, sink.rejected))
        sink.write(draft, {**_facts(unit, sink), "contents": contents_read(job, number)})


def _read_through(job: Job, unit: Unit, *, sink: _Sink, reject: Callable[[Rejected], None]) -> None:
    """Takes every batch of the unit through the chain and into the sink."""
    from meshwright.data.source.reading import read_unit

    build = job.build
    steps, started = _chain(build, job.digests), time.process_time()
    batches = read_unit(
        unit,
        job.inputs,
        sources=build.sources,
        limits=build.limits,
        reject=reject,
        count=sink.lines.append,
        repaired=sink.add_repaired,
    )
    for documents in batches:
        size = (len(documents), int(documents.bounds[-1]))
        seconds = time.process_time() - started
        sink.tally.step("read", before=size, after=size, s=seconds)
        batch = Batch(documents)
        run_chain(steps, batch, sink.tally)
        sink.add(batch)
        started = time.process_time()


@lru_cache(maxsize=1)
def _chain(build: Build, _digests: tuple[tuple[str, str], ...]) -> tuple[Step, ...]:
    """The steps of a build; what they load, as an index of test sets, is loaded once a process."""
    return chain_of(build)


def _rejecting(job: Job, file: Any, counts: dict[int, int]) -> Callable[[Rejected], None]:
    """Keeps aside what cannot be read, with its place and why."""

    def reject(found: Rejected) -> None:
        counts[found.input] = counts.get(found.input, 0) + 1
        record = {
            "file": printable(job.inputs[found.input].path),
            "line": found.line,
            "reason": found.reason,
            "excerpt": found.excerpt.decode(errors="replace"),
        }
        file.write(json.dumps(record, ensure_ascii=False).encode(errors="replace") + b"\n")

    return reject


class _Sink:
    """Takes batches that went through the chain; text goes out at once, columns at the end."""

    def __init__(self, job: Job, text: Any) -> None:
        zstandard = need("zstandard", "keeping scanned text")
        self.build = job.build
        self.tally = Tally()
        self.rejected: dict[int, int] = {}
        self.repaired: dict[int, int] = {}  # documents that were not UTF-8
        self.read: dict[int, int] = {}
        self.lines: list[int] = []  # of each span
        self._text = text
        self._compress = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress
        self._offset = 0
        self._rows = 0
        self._columns: dict[str, list[NDArray[Any]]] = {}
        self._ids: list[str] = []
        self._named = False

    def add_repaired(self, input: int, documents: int) -> None:
        """Counts documents of an input that were not UTF-8."""
        self.repaired[input] = self.repaired.get(input, 0) + documents

    def add(self, batch: Batch) -> None:
        """Keeps one batch."""
        self._add_documents(batch)
        started, size = time.process_time(), (len(batch.documents), int(batch.documents.bounds[-1]))
        if len(batch.documents):
            self._add_survivors(batch)
            self._add_bands(batch)
            self._add_block(batch)
        self._rows += len(batch.read)
        self.tally.step("keys", before=size, after=size, s=time.process_time() - started)

    def _add_documents(self, batch: Batch) -> None:
        read = batch.read
        rows = np.zeros(len(read), dtype=DOCUMENT)
        rows["input"], rows["line"], rows["bytes"] = read.input, read.line, read.lengths
        rows["reason"], rows["language"] = batch.reason, batch.language
        rows["measured"], rows["item"] = batch.measured, batch.item
        self._put("documents", rows)
        self._ids += read.ids or [""] * len(read)
        self._named = self._named or any(read.ids)
        for number, count in zip(*np.unique(read.input, return_counts=True), strict=True):
            self.read[int(number)] = self.read.get(int(number), 0) + int(count)

    def _add_survivors(self, batch: Batch) -> None:
        from meshwright.data.dedup.exact import exact_keys

        kept = batch.documents
        rows = np.zeros(len(kept), dtype=SURVIVOR)
        rows["row"] = batch.rows + self._rows
        rows["key"] = exact_keys(kept)
        rows["block"] = len(self._columns.get("blocks", ()))
        rows["start"], rows["stop"] = kept.bounds[:-1], kept.bounds[1:]
        if batch.table is not None:
            rows["words"] = np.diff(batch.table.word_bounds)
        self._put("survivors", rows)

    def _add_bands(self, batch: Batch) -> None:
        if not self.build.dedup.near or batch.table is None:
            return
        from meshwright.data.dedup.minhash import band_keys

        self._put("bands", band_keys(batch.table, self.build.dedup))

    def _add_block(self, batch: Batch) -> None:
        text = batch.documents.text[: batch.documents.bounds[-1]]
        stored = self._compress(np.ascontiguousarray(text))
        self._text.write(stored)
        block = np.array([(self._offset, len(stored), len(text))], dtype=BLOCK)
        self._put("blocks", block)
        self._offset += len(stored)

    def _put(self, name: str, rows: NDArray[Any]) -> None:
        self._columns.setdefault(name, []).append(rows)

    def write(self, draft: Draft, facts: dict[str, Any]) -> None:
        """The columns and the record of the unit."""
        empty: dict[str, NDArray[Any]] = {
            "documents": np.zeros(0, DOCUMENT),
            "survivors": np.zeros(0, SURVIVOR),
            "blocks": np.zeros(0, BLOCK),
            "bands": _no_bands(self.build),
        }
        for name, nothing in empty.items():
            draft.write_column(name, np.concatenate([nothing, *self._columns.get(name, ())]))
        if self._named:
            encoded = [name.encode(errors="replace") for name in self._ids]
            lengths = np.array([len(name) for name in encoded], dtype=np.int64)
            draft.write_column("ids", np.frombuffer(b"".join(encoded), dtype=np.uint8))
            draft.write_column("id_bounds", bounds_of(lengths))
        draft.facts.update(facts)


def _no_bands(build: Build) -> NDArray[np.uint64]:
    """The band keys of no document."""
    if not build.dedup.near:
        return np.zeros((0, 0), np.uint64)
    from meshwright.data.dedup.minhash import key_columns

    return np.zeros((0, key_columns(build.dedup)), np.uint64, order="F")


def _facts(unit: Unit, sink: _Sink) -> dict[str, Any]:
    """What the record of the unit says: counts of each input, and what the steps did."""
    numbers = sorted({span.input for span in unit.spans})
    return {
        "bytes": unit.bytes,
        "lines": sink.lines,
        "inputs": {
            str(number): {
                "read": sink.read.get(number, 0),
                "rejected": sink.rejected.get(number, 0),
                "repaired": sink.repaired.get(number, 0),
            }
            for number in numbers
        },
        **sink.tally.facts(),
    }
