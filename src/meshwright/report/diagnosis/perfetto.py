"""A small trace for ui.perfetto.dev: what each rank did, its steps, and causes as marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.diagnose.ranks import numbers_of
from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.bars import strips
from meshwright.report.diagnosis.causes import cost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.pipeline.noun import Pipeline
    from meshwright.report.diagnosis.bars import Strip

MOST_BARS = 30_000  # of all ranks: some 120 bytes each
_LONGEST_NAME = 48
_CAUSES, _PIPELINE = 1 << 30, 1 << 29  # process numbers beyond any rank's
_STEPS = 0  # thread of the steps; lanes follow


def perfetto_json(found: Diagnosis) -> str:
    """The trace as JSON of Chrome's trace events, smaller than 5 MB for any number of ranks."""
    drawn = strips(found.evidence, most=MOST_BARS)
    marks = _marks(found)
    events = [event for strip in drawn for event in _rank(strip, marks.get(strip.row, []))]
    if found.evidence.pipeline is not None:
        events += _pipeline(found.evidence.pipeline)
    events += _causes(found)
    left = sum(strip.left for strip in drawn)
    told = {
        "from": "meshwright diagnose",
        "summary": figures.line(" ".join(found.summary)),
        "left_out_bars": left,
        "left_out_us": sum(strip.left_ns for strip in drawn) / 1000,
    }
    record = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": told}
    return msgspec.json.encode(record).decode() + "\n"


def _marks(found: Diagnosis) -> dict[int, list[tuple[str, float, float]]]:
    """Where the evidence of causes shows, by row of a rank: name, start and length.

    Microseconds on the rank's own clock.
    """
    ranks = found.evidence.ranks
    rows = dict(zip(numbers_of(ranks), range(len(ranks)), strict=True))
    marks: dict[int, list[tuple[str, float, float]]] = {}
    for cause in found.causes:
        for proof in cause.evidence:
            row = rows.get(proof.ranks[0]) if proof.ranks else None
            if row is None or proof.start_us is None:
                continue
            start_us = proof.start_us + ranks[row].meta.base_ns / 1000
            name = f"{cause.code} {cause.title}"
            marks.setdefault(row, []).append((name, start_us, proof.dur_us or 1.0))
    return marks


def _rank(strip: Strip, marks: Sequence[tuple[str, float, float]]) -> Iterator[dict[str, Any]]:
    process = strip.row
    title = f"rank {strip.rank}" if strip.rank is not None else f"trace {strip.row}"
    yield from _named(process, title, ("steps", *strip.lanes, *(("causes",) if marks else ())))
    for name, start_us, us in marks:
        start_ns = 1000 * start_us - strip.origin_ns
        yield _bar(process, len(strip.lanes) + 1, name, start_ns, 1000 * us)
    for name, start, length in strip.steps:
        yield _bar(process, _STEPS, name, start, length)
    lengths = strip.end_ns - strip.start_ns
    columns = (strip.lane, strip.label, strip.start_ns, lengths)
    for lane, label, start, length in zip(*(c.tolist() for c in columns), strict=True):
        yield _bar(process, lane + 1, strip.labels[label], start, length)


def _named(process: int, title: str, threads: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Names of a process and its threads, in their order."""
    yield _meta("process_name", process, {"name": title})
    yield _meta("process_sort_index", process, {"sort_index": process})
    for number, name in enumerate(threads):
        yield _meta("thread_name", process, {"name": name}) | {"tid": number}


def _meta(name: str, process: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": process, "args": arguments}


def _bar(process: int, thread: int, name: str, start_ns: float, ns: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": figures.name(name, _LONGEST_NAME),
        "pid": process,
        "tid": thread,
        "ts": round(start_ns / 1000, 3),
        "dur": round(ns / 1000, 3),
    }


def _pipeline(found: Pipeline) -> Iterator[dict[str, Any]]:
    """Operations of one step, a thread for each worker."""
    workers = tuple(dict.fromkeys(one[0] for one in found.chart))
    threads = {name: number for number, name in enumerate(workers)}
    yield from _named(_PIPELINE, "pipeline", workers)
    for worker, kind, batch, start_us, us in found.chart[:MOST_BARS]:
        yield _bar(_PIPELINE, threads[worker], f"{kind} {batch}", 1000 * start_us, 1000 * us)


def _causes(found: Diagnosis) -> Iterator[dict[str, Any]]:
    """A mark for each cause."""
    if not found.causes:
        return
    yield from _named(_CAUSES, "causes", ("causes",))
    for cause in found.causes:
        yield {
            "ph": "i",
            "s": "g",
            "name": f"{cause.code} {figures.name(cause.title)}",
            "pid": _CAUSES,
            "tid": 0,
            "ts": 0,
            "args": {
                "cost": cost(cause),
                "message": figures.line(cause.message),
                "do": figures.line(cause.lever.text),
            },
        }
