"""What the steps of a build did, added up over its units: for people, beside the manifest.

Counts and examples are the same whatever the number of workers; seconds are of this run or, for
units that an earlier run finished, of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.data.stages.chain import EXAMPLES

if TYPE_CHECKING:
    from meshwright.data.stages.layout import Job


def scan_report(job: Job) -> dict[str, Any]:
    """Steps, dropped documents with examples, masked matches, and rejected lines of each file."""
    report: dict[str, Any] = {"steps": {}, "dropped": {}, "masked": {}, "examples": {}}
    rejected: dict[str, int] = {}
    for unit in job.units:
        record = job.store.record("scan", unit.number) or {}
        for name, counts in record.get("steps", {}).items():
            _add(report["steps"].setdefault(name, {}), counts)
        _add(report["dropped"], record.get("dropped", {}))
        _add(report["masked"], record.get("masked", {}))
        for reason, examples in record.get("examples", {}).items():
            held = report["examples"].setdefault(reason, [])
            held += examples[: EXAMPLES - len(held)]
        for number, counts in record.get("inputs", {}).items():
            if counts["rejected"]:
                path = job.inputs[int(number)].path
                rejected[path] = rejected.get(path, 0) + counts["rejected"]
    for examples in report["examples"].values():
        for example in examples:
            example["file"] = job.inputs[example.pop("input")].path
    return {**report, "rejected": rejected}


def _add(total: dict[str, Any], counts: dict[str, Any]) -> None:
    """Adds numbers by name."""
    for name, count in counts.items():
        total[name] = round(total.get(name, 0) + count, 6)
