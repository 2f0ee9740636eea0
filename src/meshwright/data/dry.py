"""A dry run: a hundredth of the input through every step, and what that means for the whole.

Pieces are taken evenly over the input, the same ones each time. Nothing is written but standard
input, which is kept for the build. Duplicates are sought within the sample alone, so that there
will be more of them than it says.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.needs import need
from meshwright.data.source.unit import Span, Unit
from meshwright.data.stages.chain import Batch, Tally, chain_of, run_chain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.documents import Documents
    from meshwright.data.settings import Build
    from meshwright.data.source.unit import Input
    from meshwright.data.stages.chain import Step
    from meshwright.data.stages.layout import Job
    from meshwright.data.tokens.tokenizer import Tokenizer

PIECE_BYTES = 1 << 20  # of text
_SHARE = 0.01
_LEAST_BYTES, _MOST_BYTES = 8 << 20, 256 << 20  # of the sample
_DOCUMENT_BYTES = 200  # of the columns that a document has in the intermediate files
_INDEX_BYTES = 60  # of a document in .idx and the pack plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a whole build would come to. Shares are of the documents read."""

    inputs: int
    stored_bytes: int
    sample_bytes: int  # of text
    sample_documents: int
    documents: int
    text_bytes: int
    kept: float  # share, before duplicates across the input
    dropped: Mapping[str, float]
    rejected: int  # in the sample
    tokens: int | None  # None without a tokenizer
    cpu_seconds: float
    work_bytes: int  # of the intermediate files at their most
    output_bytes: int


class _Sample:
    """What came of the pieces."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.keys: set[bytes] = set()
        self.documents = self.kept = self.tokens = self.rejected = self.duplicates = 0
        self.text_bytes = self.kept_bytes = self.zstd_bytes = 0
        self.seconds, self.timed_bytes = 0.0, 0
        self.whole_documents = self.whole_bytes = 0.0  # projected


def dry_run(job: Job) -> Projection:
    """Takes a sample of the job's input through its steps. Errors as those of a build."""
    build = job.build
    steps, tokenizer = chain_of(build), _tokenizer(build)
    pieces, sample = pieces_of(job), _Sample()
    stored = sum(found.bytes for found in job.inputs)
    for piece in pieces:
        _take(job, piece, steps, tokenizer, sample, share=stored / len(pieces))
    return _projection(job, sample, tokenizer)


def pieces_of(job: Job) -> tuple[Unit, ...]:
    """Stretches of about `PIECE_BYTES`, evenly over all units by their stored bytes."""
    total = sum(unit.bytes for unit in job.units)
    wanted = min(max(_LEAST_BYTES, _SHARE * total), _MOST_BYTES)
    count = max(1, min(int(wanted / PIECE_BYTES), -(-total // PIECE_BYTES)))
    ends = np.cumsum([unit.bytes for unit in job.units])
    found: dict[Span, Unit] = {}
    for place in range(count if job.units else 0):
        at = int((place + 0.5) / count * total)
        unit = job.units[min(int(np.searchsorted(ends, at, side="right")), len(ends) - 1)]
        inside = at - int(ends[unit.number] - unit.bytes)
        span = _piece(job.inputs, unit, inside)
        found.setdefault(span, Unit(number=len(found), spans=(span,), bytes=PIECE_BYTES))
    return tuple(found.values())


def _piece(inputs: tuple[Input, ...], unit: Unit, inside: int) -> Span:
    """The stretch of a unit that lies `inside` bytes into it."""
    for span in unit.spans:
        source = inputs[span.input]
        whole = source.compression or source.format == "parquet"
        size = source.bytes if whole else span.stop - span.start
        if inside < size or span == unit.spans[-1]:
            break
        inside -= size
    if source.format == "parquet":
        return Span(span.input, span.start, span.start + 1)
    if whole or (source.format == "text" and source.documents == "file"):
        return span
    start = span.start + min(inside, max(0, span.stop - span.start - PIECE_BYTES))
    return Span(span.input, start, min(start + PIECE_BYTES, span.stop))


def _take(
    job: Job,
    piece: Unit,
    steps: tuple[Step, ...],
    tokenizer: Tokenizer | None,
    sample: _Sample,
    *,
    share: float,
) -> None:
    """One piece, which stands for `share` stored bytes."""
    source = job.inputs[piece.spans[0].input]
    is_packed = bool(source.compression) or source.format == "parquet"
    started, documents, text_bytes, packed = time.process_time(), 0, 0, 0
    for batch in _read(job, piece, sample):
        documents += len(batch)
        text_bytes += int(batch.bounds[-1])
        if is_packed:
            packed += len(zlib.compress(batch.text.tobytes()))
        _judge(job.build, Batch(batch), steps, tokenizer, sample)
    if not documents:
        return
    if piece.number:  # the first one also loads libraries and models
        sample.seconds += time.process_time() - started
        sample.timed_bytes += text_bytes
    sample.documents += documents
    sample.text_bytes += text_bytes
    stored = _stored(source, piece, text_bytes, packed)
    sample.whole_documents += documents * share / stored
    sample.whole_bytes += text_bytes * share / stored


def _read(job: Job, piece: Unit, sample: _Sample) -> Iterator[Documents]:
    """Batches of a piece, up to its size."""
    from meshwright.data.source.reading import read_unit

    def reject(_found: Any) -> None:
        sample.rejected += 1

    read, build = 0, job.build
    for batch in read_unit(
        piece, job.inputs, sources=build.sources, limits=build.limits, reject=reject
    ):
        yield batch
        read += int(batch.bounds[-1])
        if read >= PIECE_BYTES:
            return


def _stored(source: Input, piece: Unit, text_bytes: int, packed: int) -> float:
    """The stored bytes that the text read from a piece came from."""
    span = piece.spans[0]
    if source.format == "parquet" or source.compression:
        return min(float(source.bytes), float(packed))
    return float(min(span.stop - span.start, source.bytes) or text_bytes)


def _judge(
    build: Build,
    batch: Batch,
    steps: tuple[Step, ...],
    tokenizer: Tokenizer | None,
    sample: _Sample,
) -> None:
    """One batch through all that a build would do with it."""
    from meshwright.data.dedup.exact import exact_keys

    run_chain(steps, batch, sample.tally)
    kept = batch.documents
    if not len(kept):
        return
    fresh = np.ones(len(kept), dtype=np.bool_)
    for place, key in enumerate(map(bytes, exact_keys(kept)) if build.dedup.exact else ()):
        fresh[place] = key not in sample.keys
        sample.keys.add(key)
    sample.duplicates += int(np.count_nonzero(~fresh))
    if build.dedup.near and batch.table is not None:
        from meshwright.data.dedup.minhash import band_keys

        band_keys(batch.table, build.dedup)
    kept = kept.take(fresh)
    sample.kept += len(kept)
    sample.kept_bytes += int(kept.bounds[-1])
    zstandard = need("zstandard", "a dry run")
    text = np.ascontiguousarray(kept.text[: kept.bounds[-1]])
    sample.zstd_bytes += len(zstandard.ZstdCompressor(level=1).compress(text))
    if tokenizer is not None and len(kept):
        sample.tokens += len(tokenizer.encode(kept)[0]) + len(kept)


def _tokenizer(build: Build) -> Tokenizer | None:
    if build.tokenizer is None:
        return None
    from meshwright.data.tokens.tokenizer import load

    return load(build.tokenizer)


def _projection(job: Job, sample: _Sample, tokenizer: Tokenizer | None) -> Projection:
    """The sample scaled to the whole."""
    read = max(1, sample.documents)
    scale = sample.whole_bytes / max(1, sample.text_bytes)
    dropped = {reason: count / read for reason, count in sample.tally.dropped.items()}
    if sample.duplicates:
        dropped["exact_duplicate"] = sample.duplicates / read
    token_bytes = 0.0
    if tokenizer is not None:
        token_bytes = sample.tokens * scale * np.dtype(tokenizer.dtype).itemsize
    documents, kept = sample.whole_documents, sample.kept * scale
    text = sample.zstd_bytes * scale if job.build.output.text or tokenizer is None else 0.0
    return Projection(
        inputs=len(job.inputs),
        stored_bytes=sum(found.bytes for found in job.inputs),
        sample_bytes=sample.text_bytes,
        sample_documents=sample.documents,
        documents=round(documents),
        text_bytes=round(sample.whole_bytes),
        kept=sample.kept / read,
        dropped=dropped,
        rejected=sample.rejected,
        tokens=None if tokenizer is None else round(sample.tokens * scale),
        cpu_seconds=sample.seconds * sample.whole_bytes / max(1, sample.timed_bytes),
        work_bytes=round(sample.zstd_bytes * scale + documents * _DOCUMENT_BYTES + 2 * token_bytes),
        output_bytes=round(token_bytes + kept * _INDEX_BYTES + text),
    )
