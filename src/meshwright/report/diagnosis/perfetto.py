"""A small trace for ui.perfetto.dev: what each rank did, its steps, and causes as marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.bars import strips
from meshwright.report.diagnosis.causes import cost

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    events = [event for strip in drawn for event in _rank(strip)]
    if found.evidence.pipeline is not None:
        events += _pipeline(found.evidence.pipeline)
    events += _causes(found)
    left = sum(strip.left for strip in drawn)
    told = {
        "from": "meshwright diagnose",
        "summary": " ".join(found.summary),
        "left_out_bars": left,
        "left_out_us": sum(strip.left_ns for strip in drawn) / 1000,
    }
    record = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": told}
    return msgspec.json.encode(record).decode() + "\n"


def _rank(strip: Strip) -> Iterator[dict[str, Any]]:
    process = strip.row
    title = f"rank {strip.rank}" if strip.rank is not None else f"trace {strip.row}"
    yield from _named(process, title, ("steps", *strip.lanes))
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
        yield _meta("thread_sort_index", process, {"sort_index": number}) | {"tid": number}


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
            "args": {"cost": cost(cause), "message": cause.message, "do": cause.lever.text},
        }
