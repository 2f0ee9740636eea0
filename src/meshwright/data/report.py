"""What the steps of a build did, added up over its units: for people, beside the manifest.

Counts and examples are the same whatever the number of workers; seconds are of this run or, for
units that an earlier run finished, of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.data.stages.chain import EXAMPLES
from meshwright.data.stages.lines import before

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.stages.layout import Job


def scan_report(job: Job) -> dict[str, Any]:
    """Steps, dropped documents with examples, masked matches, rejected lines of each file, and how
    many texts of each test set were too short to be sought."""
    report: dict[str, Any] = {"steps": {}, "dropped": {}, "masked": {}, "examples": {}}
    rejected: dict[str, int] = {}
    too_short: dict[str, int] = {}
    for unit in job.units:
        record = job.store.record("scan", unit.number) or {}
        for name, counts in record.get("steps", {}).items():
            _add(report["steps"].setdefault(name, {}), counts)
        _add(report["dropped"], record.get("dropped", {}))
        _add(report["masked"], record.get("masked", {}))
        too_short |= record.get("too_short", {})
        ahead = before(job.store, unit.number)
        for reason, examples in record.get("examples", {}).items():
            held = report["examples"].setdefault(reason, [])
            held += [_placed(job, one, ahead) for one in examples[: EXAMPLES - len(held)]]
        for number, counts in record.get("inputs", {}).items():
            if counts["rejected"]:
                path = job.inputs[int(number)].path
                rejected[path] = rejected.get(path, 0) + counts["rejected"]
    return {**report, "rejected": rejected, "too_short": too_short}


def _placed(job: Job, example: dict[str, Any], ahead: Mapping[int, int]) -> dict[str, Any]:
    """An example with the path of its file, and its line in that."""
    number = example["input"]
    line = example["line"] + ahead.get(number, 0)
    return {
        "file": job.inputs[number].path,
        "line": line,
        "excerpt": example["excerpt"],
        "why": example["why"],
    }


def _add(total: dict[str, Any], counts: dict[str, Any]) -> None:
    """Adds numbers by name."""
    for name, count in counts.items():
        total[name] = round(total.get(name, 0) + count, 6)
