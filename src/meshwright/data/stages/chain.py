"""The steps that a batch of documents goes through in a scan, each with what it did.

A step may change texts, give some documents a reason to go, or both. Documents that go leave the
batch at once, so that later steps have less to do; what a step does to one document never depends
on the others in its batch.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.reasons import CODES, REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask, Verdict
    from meshwright.data.settings import Build
    from meshwright.data.words.table import Table

    Why = Callable[[int, str], str]  # place in the batch, reason -> what was found wrong

EXAMPLES = 5  # of each reason, from one unit
EXCERPT_CHARACTERS = 200


class Batch:
    """Documents on their way: those still there, and the fate of all that were read."""

    def __init__(self, documents: Documents) -> None:
        count = len(documents)
        self.read = documents
        self.documents = documents
        self.rows: NDArray[np.int32] = np.arange(count, dtype=np.int32)  # of those still there
        self.reason: NDArray[np.uint16] = np.zeros(count, dtype=np.uint16)
        self.language: NDArray[np.uint16] = np.zeros(count, dtype=np.uint16)
        self.measured: NDArray[np.float32] = np.full(count, -1, dtype=np.float32)
        self.item: NDArray[np.int32] = np.full(count, -1, dtype=np.int32)  # of a test set
        self.table: Table | None = None

    def drop(self, verdict: Verdict) -> Mapping[str, NDArray[np.intp]]:
        """Takes out what a verdict names; the documents of each reason, by place before it."""
        codes: NDArray[np.uint16] = np.zeros(len(self.documents), dtype=np.uint16)
        for reason, mask in verdict.items():
            codes[mask & (codes == 0)] = CODES[reason]
        if not codes.any():
            return {}
        gone = {reason: np.flatnonzero(codes == CODES[reason]) for reason in verdict}
        self.reason[self.rows] = codes
        self._keep(codes == 0)
        return {reason: places for reason, places in gone.items() if len(places)}

    def _keep(self, kept: Mask) -> None:
        self.documents = self.documents.take(kept)
        self.rows = self.rows[kept]
        self.table = self.table.take(kept) if self.table is not None else None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: changes `batch.documents` or `batch.table` in place and says what goes."""

    name: str
    run: Callable[[Batch, Tally], Verdict]
    why: Callable[[Batch], Why] | None = None  # asked before what goes is taken out


class Tally:
    """What the steps of one unit did: counts, CPU seconds, and examples of what was dropped."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, float]] = {}
        self.dropped: dict[str, int] = {}
        self.masked: dict[str, int] = {}
        self.items: dict[int, str] = {}  # texts of test sets that were found, by number
        self.too_short: dict[str, int] = {}  # texts of test sets that are not sought, by file
        self.examples: dict[str, list[dict[str, Any]]] = {}

    def step(self, name: str, *, before: tuple[int, int], after: tuple[int, int], s: float) -> None:
        """Adds one batch to a step; `before` and `after` are documents and bytes of text."""
        total = self.steps.setdefault(name, dict.fromkeys(_COUNTED, 0))
        values = (before[0], before[1], after[0], after[1], s)
        for key, value in zip(_COUNTED, values, strict=True):
            total[key] += value

    def note(
        self, reason: str, documents: Documents, *, places: NDArray[np.intp], why: Why | None
    ) -> None:
        """Counts dropped documents, and keeps the first few as examples."""
        self.dropped[reason] = self.dropped.get(reason, 0) + len(places)
        shown = self.examples.setdefault(reason, [])
        for place in places[: EXAMPLES - len(shown)].tolist():
            said = why(place, reason) if why is not None else REASONS[reason]
            shown.append({**_example(documents, place), "why": said})

    def facts(self) -> dict[str, Any]:
        """All of it, for the record of the unit."""
        return {
            "steps": {
                name: {**total, "seconds": round(total["seconds"], 6)}
                for name, total in self.steps.items()
            },
            "dropped": self.dropped,
            "masked": self.masked,
            "items": {str(number): self.items[number] for number in sorted(self.items)},
            "too_short": self.too_short,
            "examples": self.examples,
        }


_COUNTED = ("documents_in", "bytes_in", "documents_out", "bytes_out", "seconds")


def run_chain(steps: tuple[Step, ...], batch: Batch, tally: Tally) -> None:
    """Takes a batch through every step."""
    for step in steps:
        before, started = _size(batch), time.process_time()
        verdict = step.run(batch, tally)
        judged, going = batch.documents, any(mask.any() for mask in verdict.values())
        why = step.why(batch) if step.why is not None and going else None
        for reason, places in batch.drop(verdict).items():
            tally.note(reason, judged, places=places, why=why)
        seconds = time.process_time() - started
        tally.step(step.name, before=before, after=_size(batch), s=seconds)


def chain_of(build: Build) -> tuple[Step, ...]:
    """The steps that a build asks for, in the order in which they are taken."""
    return tuple(_steps(build))


def _steps(build: Build) -> Iterator[Step]:
    yield _clean(build)
    if build.pii is not None:
        yield _pii(build)
    if build.language is not None:
        yield _language(build)
    if has_filters(build):
        yield _filters(build)
    elif needs_words(build):
        yield _words()
    if build.decontaminate is not None:
        yield _decontaminate(build)


def has_filters(build: Build) -> bool:
    """Whether documents are judged by their words and lines."""
    asked = (build.gopher_quality, build.gopher_repetition, build.c4, build.fineweb)
    return any(settings is not None for settings in asked)


def needs_words(build: Build) -> bool:
    """Whether a step behind the filters asks for the table of words."""
    return build.dedup.near or build.decontaminate is not None


def _clean(build: Build) -> Step:
    from meshwright.data.clean.unicode import judge, repair

    def run(batch: Batch, _tally: Tally) -> Verdict:
        batch.documents = repair(batch.documents, build.clean)
        return judge(batch.documents, build.clean)

    return Step("clean", run)


def _pii(build: Build) -> Step:
    from meshwright.data.clean.pii import mask

    settings = build.pii
    assert settings is not None

    def run(batch: Batch, tally: Tally) -> Verdict:
        batch.documents, counts = mask(batch.documents, settings)
        for kind, count in counts.items():
            tally.masked[kind] = tally.masked.get(kind, 0) + int(count)
        return {}

    return Step("pii", run)


def _language(build: Build) -> Step:
    from meshwright.data.clean.language import CODES as CODES_OF_LANGUAGES
    from meshwright.data.clean.language import identify, judge

    settings = build.language
    assert settings is not None

    def run(batch: Batch, _tally: Tally) -> Verdict:
        codes, scores = identify(batch.documents)
        batch.language[batch.rows] = codes
        verdict = judge(codes, scores, settings)
        batch.measured[batch.rows] = np.where(verdict["language"], scores, np.float32(-1))
        return verdict

    def why(batch: Batch) -> Why:
        found = batch.language[batch.rows]
        return lambda place, reason: f"{REASONS[reason]}: {CODES_OF_LANGUAGES[found[place]]}"

    return Step("language", run, why)


def _filters(build: Build) -> Step:
    from meshwright.data.filters import apply, explain

    def run(batch: Batch, _tally: Tally) -> Verdict:
        measured = np.full(len(batch.documents), -1, dtype=np.float32)
        batch.table, verdict = apply(batch.documents, build, measured=measured)
        batch.measured[batch.rows] = measured
        batch.documents = batch.table.documents
        return verdict

    def why(batch: Batch) -> Why:
        table = batch.table
        assert table is not None
        return lambda place, reason: explain(table, place, reason=reason, build=build)

    return Step("filters", run, why)


def _words() -> Step:
    from meshwright.data.words.table import Table

    def run(batch: Batch, _tally: Tally) -> Verdict:
        batch.table = Table.of(batch.documents)
        return {}

    return Step("words", run)


def _decontaminate(build: Build) -> Step:
    from meshwright.data.decontaminate import first_items, index_of

    settings = build.decontaminate
    assert settings is not None
    index = index_of(settings)
    too_short = {file: count for file, count in index.too_short.items() if count}

    def run(batch: Batch, tally: Tally) -> Verdict:
        assert batch.table is not None
        items = first_items(batch.table, index)
        batch.item[batch.rows] = items
        tally.items |= {number: str(index.items[number]) for number in set(items.tolist()) - {-1}}
        tally.too_short = too_short
        return {"contaminated": items >= 0}

    def why(batch: Batch) -> Why:
        items = batch.item[batch.rows]
        return lambda place, _reason: f"shares a run of words with {index.items[items[place]]}"

    return Step("decontaminate", run, why)


def _size(batch: Batch) -> tuple[int, int]:
    return len(batch.documents), int(batch.documents.bounds[-1])


def _example(documents: Documents, place: int) -> dict[str, Any]:
    start = int(documents.bounds[place])
    stop = min(int(documents.bounds[place + 1]), start + 4 * EXCERPT_CHARACTERS)
    text = documents.text[start:stop].tobytes().decode(errors="ignore")
    return {
        "input": int(documents.input[place]),
        "line": int(documents.line[place]),
        "excerpt": text[:EXCERPT_CHARACTERS],
    }
