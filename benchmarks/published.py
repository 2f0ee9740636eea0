"""False alarms: published runs, written in their framework's words, must pass `check`.

Those runs did run, so an error-level finding on one of them is a false alarm. Each run is turned
into a job, written as its framework's configuration, read back and checked with the GPUs it ran on.
A run whose plan its framework has no words for is counted apart, with the reason.

    python benchmarks/published.py [--json] [--quick] [--runs FILE]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Severity
from meshwright.evidence.jobs import job_of
from meshwright.evidence.row import Inexpressible
from meshwright.evidence.runs import packaged_runs, read_runs
from meshwright.frameworks.framework import framework
from meshwright.frameworks.read import read_text
from meshwright.frameworks.text.render import render
from meshwright.rules.lint import lint

if TYPE_CHECKING:
    from meshwright.plan.job import Job

WRITTEN_AS = (  # what the column `framework` begins with or holds, and the framework it is
    ("nanotron", "nanotron"),
    ("megatron-bridge", "megatron-bridge"),
    ("nemo automodel", "torchtitan"),
    ("nemo", "nemo"),
    ("mindspeed", "mindspeed"),
    ("modellink", "mindspeed"),
    ("megatron", "megatron-lm"),
    ("primus", "megatron-lm"),
    ("megascale", "megatron-lm"),
    ("deepspeed", "deepspeed"),
    ("hf trainer", "hf-trainer"),
    ("torchtune", "torchtitan"),
    ("fsdp", "hf-trainer"),
)
OWN = "meshwright"  # frameworks that no table describes are written as a plan of our own


def written_as(name: str) -> str:
    """The framework whose words a run's are closest to."""
    lower = name.lower()
    return next((target for part, target in WRITTEN_AS if part in lower), OWN)


def judged(job: Job, target: str) -> dict[str, Any]:
    """How one run fares: clean, or the codes of its false alarms, or why it cannot be written."""
    chosen = framework(target)
    if chosen.express is None:
        return {"refused": "only read"}
    expressed = chosen.express(job, "")
    if expressed.refused:
        return {"refused": "; ".join(expressed.refused)}
    text = render(chosen.syntaxes[0], expressed.settings, launch=expressed.launch)
    reading = read_text(text, file=chosen.file_name, framework=target)
    found = lint(reading, model=job.model, cluster=job.cluster)
    alarms = [f for f in found.findings if f.severity is Severity.ERROR]
    back = replace(found.drafted.job, stack=job.stack)
    return {
        "alarms": [f"{f.code}: {f.message}" for f in alarms],
        "differs": sorted(_differences(job, back)),
        "lost": sorted(expressed.lost),
    }


def _differences(before: Job, after: Job) -> dict[str, Any]:
    """Fields of the plan that are not the same after writing and reading."""
    from meshwright.plan.words import plan_words

    first, second = plan_words(before.plan, every=True), plan_words(after.plan, every=True)
    return {n: (first.get(n), second.get(n)) for n in first if first.get(n) != second.get(n)}


def figures(runs_path: str, *, every: int = 1) -> dict[str, Any]:
    """Counts by framework: runs written, clean, with alarms (by code), not written (by reason)."""
    runs = (read_runs(runs_path) if runs_path else packaged_runs()).rows[::every]
    table: dict[str, Counter[str]] = {}
    alarms: Counter[str] = Counter()
    examples: dict[str, str] = {}
    differs: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for run in runs:
        job = job_of(run.row)
        target = written_as(run.row.text("framework"))
        counts = table.setdefault(target, Counter())
        if isinstance(job, Inexpressible):
            counts["no job"] += 1
            continue
        outcome = judged(job, target)
        if "refused" in outcome:
            counts["not written"] += 1
            refused[f"{target}: {outcome['refused']}"] += 1
            continue
        counts["written"] += 1
        counts["clean"] += not outcome["alarms"]
        differs.update(f"{target}: {name}" for name in outcome["differs"])
        for alarm in outcome["alarms"]:
            alarms[f"{target} {alarm.split(':')[0]}"] += 1
            examples.setdefault(f"{target} {alarm.split(':')[0]}", f"{run.id}: {alarm}")
    written = sum(c["written"] for c in table.values())
    clean = sum(c["clean"] for c in table.values())
    return {
        "runs": len(runs),
        "written": written,
        "clean": clean,
        "clean_share": clean / max(written, 1),
        "by_framework": {name: dict(counts) for name, counts in sorted(table.items())},
        "alarms": dict(alarms.most_common()),
        "examples": examples,
        "differs": dict(differs.most_common()),
        "not_written": dict(refused.most_common()),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="every twentieth run")
    parser.add_argument("--runs", default="", help="a file of runs; default the packaged ones")
    arguments = parser.parse_args()
    found = figures(arguments.runs, every=20 if arguments.quick else 1)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['written']} of {found['runs']} runs written, {found['clean_share']:.2%} clean")
    for name, counts in found["by_framework"].items():
        print(f"  {name:<16}", ", ".join(f"{k} {v}" for k, v in counts.items()))
    for title in ("alarms", "examples", "differs", "not_written"):
        print(title)
        for name, value in found[title].items():
            print(f"  {name}: {value}")


if __name__ == "__main__":
    main()
