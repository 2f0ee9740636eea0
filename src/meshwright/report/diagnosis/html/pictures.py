"""What the report's script draws: ranks as bars, and timelines, as numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.bars import strips
from meshwright.report.diagnosis.tables import rank_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.diagnosis import Diagnosis, Evidence
    from meshwright.diagnose.pipeline.noun import Pipeline
    from meshwright.report.diagnosis.bars import Strip
    from meshwright.report.diagnosis.tables import RankLine

MOST_ROWS, MOST_BARS = 64, 24_000  # of a timeline
_STEPS_SHOWN = 2


def pictures(found: Diagnosis) -> dict[str, Any]:
    """The data of all pictures: times in microseconds."""
    lines = rank_lines(found.evidence)
    return {
        "ranks": [_rank(line) for line in lines],
        "timeline": _timeline(found.evidence, lines),
        "pipeline": _pipeline(found.evidence.pipeline),
    }


def _rank(line: RankLine) -> list[Any]:
    """One rank, in the order that the script reads."""
    times = (
        line.compute_us,
        line.communication_us,
        line.copies_us,
        line.idle_us,
        line.wait_us,
        line.waited_for_us,
    )
    return [
        _name(line),
        figures.name(line.file, 80),
        *(None if us is None or not math.isfinite(us) else round(us, 1) for us in times),
        line.times_last,
        line.because.replace("_", " "),
        line.principal.replace("_", " "),
    ]


def _name(line: RankLine) -> str:
    return figures.name(line.file, 28) if line.rank is None else str(line.rank)


def _timeline(evidence: Evidence, lines: Sequence[RankLine]) -> dict[str, Any] | None:
    """Two steps in the middle of the worst ranks, and of some of the others."""
    chosen = _chosen([line.file for line in lines])
    wanted = {rank.file: n for n, rank in enumerate(evidence.ranks)}
    rows = {wanted[file] for file in chosen}
    drawn = strips(evidence, most=MOST_BARS, rows=rows, steps=_STEPS_SHOWN)
    if not drawn:
        return None
    labels: dict[str, int] = {}
    return {
        "rows": [_row(strip, labels) for strip in sorted(drawn, key=_order(evidence, chosen))],
        "labels": list(labels),
        "of": len(evidence.ranks),
        "left": sum(strip.left for strip in drawn),
    }


def _order(evidence: Evidence, chosen: Sequence[str]) -> Any:
    place = {file: n for n, file in enumerate(chosen)}
    return lambda strip: place[evidence.ranks[strip.row].file]


def _chosen(files: Sequence[str]) -> list[str]:
    """The first half of the rows that are shown, and as many spread over the rest."""
    if len(files) <= MOST_ROWS:
        return list(files)
    half = MOST_ROWS // 2
    rest = files[half:]
    spread = [rest[n * len(rest) // half] for n in range(half)]
    return [*files[:half], *spread]


def _row(strip: Strip, labels: dict[str, int]) -> dict[str, Any]:
    """One rank's bars: lane, label, start, length, four numbers each."""
    names = [figures.name(label, 64) for label in strip.labels]
    flat: list[Any] = []
    columns = (strip.lane, strip.label, strip.start_ns, strip.end_ns)
    for lane, label, start, end in zip(*(c.tolist() for c in columns), strict=True):
        number = labels.setdefault(names[label], len(labels))
        flat += [lane, number, round(start / 1000, 1), round((end - start) / 1000, 1)]
    title = f"rank {strip.rank}" if strip.rank is not None else f"trace {strip.row}"
    steps = [
        [figures.name(n, 32), round(s / 1000, 1), round(d / 1000, 1)] for n, s, d in strip.steps
    ]
    return {"name": title, "lanes": list(strip.lanes), "bars": flat, "steps": steps}


def _pipeline(found: Pipeline | None) -> dict[str, Any] | None:
    """The operations of one step by worker."""
    if found is None or not found.chart:
        return None
    workers: dict[str, list[Any]] = {}
    kinds: dict[str, int] = {}
    labels: dict[str, int] = {}
    for worker, kind, batch, start, us in found.chart[:MOST_BARS]:
        lane = kinds.setdefault(kind, len(kinds))
        label = labels.setdefault(f"{kind} {batch}", len(labels))
        workers.setdefault(worker, []).extend([lane, label, round(start, 1), round(us, 1)])
    rows = [
        {
            "name": figures.name(name, 28),
            "lanes": [figures.name(k, 40) for k in kinds],
            "bars": bars,
            "steps": [],
        }
        for name, bars in workers.items()
    ]
    left = max(0, len(found.chart) - MOST_BARS)
    return {"rows": rows, "labels": list(labels), "of": len(workers), "left": left}
