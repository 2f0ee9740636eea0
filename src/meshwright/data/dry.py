"""A dry run: a sample of the input built in a temporary folder, and what that means for the whole.

The sample goes through the stages of a build, near duplicates and packing included, so that what it
says of a small input, all of which is sampled, is what a build does. Duplicates are sought within
the sample alone: across a large input there are more of them than it says. Nothing is left behind
but standard input, which is kept for the build.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.failures import broken_off
from meshwright.data.needs import need
from meshwright.data.pack.mixing import Stock, quotas
from meshwright.data.reasons import REASONS
from meshwright.data.sample import first_piece, kind_of, sample_of
from meshwright.data.shards.names import DOCUMENTS, TOKENIZER, WORK
from meshwright.data.stages.fates import fates_of, places_of
from meshwright.data.stages.finish import finish
from meshwright.data.stages.plan import stages_of
from meshwright.data.work.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.data.sample import Sample
    from meshwright.data.stages.layout import Job

_FIRST_BYTES = 64 << 10  # of the piece that shows what starting takes
_BEFORE_TOKENS = ("scan", "lines", "link", "shingle", "decide")
_OF_TOKENS = ("arrange", "emit")  # what they write grows with the tokens of the output


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProjection:
    """What a source would give to the output."""

    name: str
    tokens: int  # kept
    used_tokens: int  # in the output, repeats counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a whole build would come to. Shares are of the documents read."""

    is_all: bool  # all of the input was sampled, so that counts are those of a build
    inputs: int
    stored_bytes: int
    sample_bytes: int  # of text
    sample_documents: int
    documents: int
    text_bytes: int
    kept: float  # share, before duplicates beyond the sample
    dropped: Mapping[str, float]
    rejected: int  # in the sample
    refused: tuple[str, ...]  # files of which too much cannot be read, so that a build stops
    tokens: int | None  # of the output; None without a tokenizer
    sources: tuple[SourceProjection, ...]  # empty without a tokenizer
    start_s: float  # of each worker: libraries, vocabulary, models, indexes
    cpu_seconds: float  # beyond that
    units: int  # no more workers than these have anything to do
    work_bytes: int  # on the disk at the most, the output included
    output_bytes: int

    def seconds(self, workers: int) -> float:
        """How long a build takes on so many free cores."""
        starts = self.start_s * (1 if workers == 1 else 2)  # this process too
        return starts + self.cpu_seconds / max(1, min(workers, self.units))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Documents of the sample by number of the input: [inputs, reasons], [inputs]."""

    documents: NDArray[np.int64]
    text_bytes: NDArray[np.int64]
    tokens: NDArray[np.int64]  # of those with tokens, once each


def dry_run(job: Job) -> Projection:
    """Builds a sample of the job's input and scales what came of it. Errors as those of a build."""
    sample = sample_of(job)
    with TemporaryDirectory(prefix="meshwright-") as name:
        folder = Path(name)
        try:
            trial = _trial(job, sample, folder)
            start_s = _start(job, trial, folder / "start")
            started = time.process_time()
            for stage in stages_of(trial):
                for number in stage.units(trial):
                    stage.make(trial, number)
            counted = _count(trial)
            worked = _sizes(folder / WORK)
            finish(trial)
            seconds = time.process_time() - started
            written = _sizes(folder)
        except OSError as error:
            raise broken_off(error, folder) from error
        projected = _Projected(job, trial, sample=sample, counted=counted)
        return projected.result(start_s, seconds, worked=worked, written=written)


def _trial(job: Job, sample: Sample, folder: Path) -> Job:
    """The job of the sample. Weights are those of the whole, so that a part is not mixed."""
    output = replace(job.build.output, folder=str(folder))
    build = replace(job.build, output=output)
    if not sample.is_all:
        build = replace(build, sources=tuple(replace(one, weight=None) for one in build.sources))
    return replace(job, build=build, units=sample.units, store=Store(folder / WORK))


def _start(job: Job, trial: Job, folder: Path) -> float:
    """CPU seconds until a first few documents have their tokens: what every worker loads first."""
    started = time.process_time()
    need("pyarrow.parquet", "writing documents.parquet")
    first = first_piece(job, _FIRST_BYTES)
    if first is not None:
        small = replace(trial, units=(first,), store=Store(folder))
        for stage in stages_of(small):
            if stage.name not in _OF_TOKENS:
                for number in stage.units(small):
                    stage.make(small, number)
    return time.process_time() - started


def _count(trial: Job) -> _Counted:
    """Adds up what became of the documents of the sample."""
    inputs = len(trial.inputs)
    counted = _Counted(
        documents=np.zeros((inputs, len(REASONS)), dtype=np.int64),
        text_bytes=np.zeros(inputs, dtype=np.int64),
        tokens=np.zeros(inputs, dtype=np.int64),
    )
    places = places_of(trial)
    for unit in trial.units:
        fates = fates_of(trial, unit.number, places)
        read = fates.unit.documents
        np.add.at(counted.documents, (read["input"], fates.reason), 1)
        np.add.at(counted.text_bytes, read["input"], read["bytes"])
        np.add.at(counted.tokens, read["input"], np.maximum(fates.tokens, 0))
    return counted


class _Projected:
    """The sample scaled to the whole."""

    def __init__(self, job: Job, trial: Job, *, sample: Sample, counted: _Counted) -> None:
        self.job, self.trial, self.sample, self.counted = job, trial, sample, counted
        scales = [sample.scales.get(kind_of(found)) for found in job.inputs]
        by_document = np.array([scale.documents if scale else 0.0 for scale in scales])
        by_byte = np.array([scale.bytes if scale else 0.0 for scale in scales])
        self.reasons = by_document @ counted.documents
        self.documents = float(self.reasons.sum())
        self.text_bytes = float(by_byte @ counted.text_bytes)
        source_of = np.array([found.source for found in job.inputs], dtype=np.int64)
        count = len(job.build.sources)
        self.tokens = np.bincount(source_of, by_byte * counted.tokens, count)
        self.used = self._mixed() if job.build.tokenizer is not None else self.tokens

    def _mixed(self) -> NDArray[np.float64]:
        """Tokens of each source in the output."""
        rows = (self.trial.store.record("arrange", 0) or {})["sources"]
        placed = np.array([row["train_tokens"] + row["valid_tokens"] for row in rows], np.float64)
        sources = self.job.build.sources
        if self.sample.is_all or all(source.weight is None for source in sources):
            return placed if self.sample.is_all else np.asarray(self.tokens, dtype=np.float64)
        held = np.array([row["valid_tokens"] / max(1, row["tokens"]) for row in rows])
        valid = held * self.tokens
        train = self.tokens - valid
        stocks = [
            Stock(name=source.name, weight=source.weight, tokens=round(tokens))
            for source, tokens in zip(sources, train.tolist(), strict=True)
        ]
        wanted = np.array(quotas(stocks, self.job.build.mix), dtype=np.float64)
        self._leave_out(1 - np.minimum(1, wanted / np.maximum(1, train)), train / self.tokens)
        return np.asarray(wanted + valid, dtype=np.float64)

    def _leave_out(self, unused: NDArray[np.float64], train: NDArray[np.float64]) -> None:
        """Moves documents that the mix does not take to its reason."""
        names = list(REASONS)
        scales = [self.sample.scales.get(kind_of(found)) for found in self.job.inputs]
        for found, scale, counts in zip(
            self.job.inputs, scales, self.counted.documents, strict=True
        ):
            share = float(np.nan_to_num(unused[found.source] * train[found.source]))
            gone = counts[0] * share * (scale.documents if scale else 0.0)
            self.reasons[0] -= gone
            self.reasons[names.index("mix")] += gone

    def result(
        self, start_s: float, seconds: float, *, worked: dict[str, int], written: dict[str, int]
    ) -> Projection:
        """The projection, with what the sample took of time and disk."""
        job, read = self.job, max(1.0, self.documents)
        output, most = self._disk(worked, written)
        has_tokens = job.build.tokenizer is not None
        return Projection(
            is_all=self.sample.is_all,
            inputs=len(job.inputs),
            stored_bytes=sum(found.bytes for found in job.inputs),
            sample_bytes=int(self.counted.text_bytes.sum()),
            sample_documents=int(self.counted.documents.sum()),
            documents=round(self.documents),
            text_bytes=round(self.text_bytes),
            kept=float(self.reasons[0]) / read,
            dropped={
                reason: float(count) / read
                for reason, count in zip(REASONS, self.reasons.tolist(), strict=True)
                if reason and count
            },
            rejected=sum(count for _, count in self._rejected().values()),
            refused=self._refused(),
            tokens=round(float(self.used.sum())) if has_tokens else None,
            sources=self._sources() if has_tokens else (),
            start_s=start_s,
            cpu_seconds=seconds * self._growth(self.text_bytes, self.counted.text_bytes.sum()),
            units=len(job.units),
            work_bytes=round(most),
            output_bytes=round(output),
        )

    def _sources(self) -> tuple[SourceProjection, ...]:
        return tuple(
            SourceProjection(name=source.name, tokens=round(kept), used_tokens=round(used))
            for source, kept, used in zip(
                self.job.build.sources, self.tokens.tolist(), self.used.tolist(), strict=True
            )
        )

    def _rejected(self) -> dict[int, tuple[int, int]]:
        """Documents read and lines rejected in the sample, by number of the input."""
        found: dict[int, tuple[int, int]] = {}
        for unit in self.trial.units:
            record = self.trial.store.record("scan", unit.number) or {}
            for name, counts in record.get("inputs", {}).items():
                read, rejected = found.get(int(name), (0, 0))
                found[int(name)] = (read + counts["read"], rejected + counts["rejected"])
        return found

    def _refused(self) -> tuple[str, ...]:
        limit = self.job.build.limits.bad_fraction
        return tuple(
            self.job.inputs[number].path
            for number, (read, rejected) in self._rejected().items()
            if rejected > limit * (read + rejected)
        )

    def _disk(self, worked: dict[str, int], written: dict[str, int]) -> tuple[float, float]:
        """Bytes of the output, and of all that is there at the most: when it is just complete."""
        sampled = self.counted
        text = self._growth(self.text_bytes, sampled.text_bytes.sum())
        tokens = self._growth(self.tokens.sum(), sampled.tokens.sum())
        used = self._growth(self.used.sum(), self._placed())
        documents = self._growth(self.documents, sampled.documents.sum())
        output = work = 0.0
        for name, size in written.items():
            if name.startswith((f"{WORK}/", "start/")):
                continue
            grows = 1.0
            if name.startswith(("train-", "valid-")):
                grows = used
            elif name.startswith(("text-", "rejected")):
                grows = text
            elif name == DOCUMENTS:
                grows = documents
            output += size * grows
        for name, size in worked.items():
            stage, _, rest = name.partition("/")
            if stage in _BEFORE_TOKENS:
                work += size * text
            elif stage == "tokenize":
                work += size * tokens
            elif stage == "arrange":
                work += size * (1.0 if f"/{TOKENIZER}/" in rest else used)
        return output, output + work

    def _placed(self) -> float:
        """Tokens in the shards of the sample."""
        record = self.trial.store.record("arrange", 0) or {}
        rows = record.get("sources", [])
        return float(sum(row["train_tokens"] + row["valid_tokens"] for row in rows))

    @staticmethod
    def _growth(whole: float, part: float) -> float:
        """How often what was sampled is in the whole; 1 for nothing."""
        return float(whole) / float(part) if part else 1.0


def _sizes(folder: Path) -> dict[str, int]:
    """Bytes of every file below a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
