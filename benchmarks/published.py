"""False alarms: published runs, written in their framework's words, must pass `check`.

Those runs did run, so an error-level finding on one of them is a false alarm. Each run is turned
into a job, written as its framework's configuration, read back and checked with the GPUs it ran on.
A run whose plan its framework has no words for is counted apart, with the reason. Of the job that
is read back the plan, the predicted memory and the predicted step time are compared with those of
the job that was written.

    python benchmarks/published.py [--json] [--quick] [--every N --offset K] [--only ID,...]
        [--runs FILE] [--write-docs PAGE]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.cost.predict import evaluate
from meshwright.evidence.jobs import job_of
from meshwright.evidence.page import table
from meshwright.evidence.row import Inexpressible
from meshwright.evidence.runs import packaged_runs, read_runs
from meshwright.frameworks.framework import framework
from meshwright.frameworks.read import read_text
from meshwright.frameworks.text.render import render
from meshwright.plan.words import plan_words
from meshwright.rules.lint import lint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    ("composer", "meshwright"),  # FSDP of trainers that no table describes
    ("levanter", "meshwright"),
    ("fms-fsdp", "meshwright"),
    ("lit-gpt", "meshwright"),
    ("fsdp", "torch-fsdp"),
)
OWN = "meshwright"  # frameworks that no table describes are written as a plan of our own
SAME = 0.005  # relative difference of two predictions that are equal
QUICK = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one run fares: `refused` says why it cannot be written, "" if it can.

    `alarms` are its false alarms as (code, message), `differs` the fields of the plan that are not
    read back as they were written, `figures` those of "memory" and "time" that are not.
    """

    run: str
    target: str
    refused: str = ""
    alarms: tuple[tuple[str, str], ...] = ()
    differs: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """Counts over outcomes."""

    by_framework: dict[str, Counter[str]] = field(default_factory=dict)
    alarms: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    differs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Counts one run."""
        counts = self.by_framework.setdefault(outcome.target, Counter())
        if outcome.refused:
            counts["not written"] += 1
            self.refused[f"{outcome.target}: {outcome.refused}"] += 1
            return
        counts["written"] += 1
        counts["clean"] += not outcome.alarms
        counts["same plan"] += not outcome.differs
        counts["same memory"] += "memory" not in outcome.figures
        counts["same time"] += "time" not in outcome.figures
        self.differs.update(f"{outcome.target}: {name}" for name in outcome.differs)
        for code, message in outcome.alarms:
            name = f"{outcome.target} {code}"
            self.alarms[name] += 1
            self.examples.setdefault(name, f"{outcome.run}: {message}")


def written_as(name: str) -> str:
    """The framework whose words a run's are closest to."""
    lower = name.lower()
    return next((target for part, target in WRITTEN_AS if part in lower), OWN)


def judged(run: str, job: Job, target: str) -> Outcome:
    """How the job of a run fares that is written as the configuration of a framework."""
    chosen = framework(target)
    if chosen.express is None:
        return Outcome(run=run, target=target, refused="only read")
    expressed = chosen.express(job, "")
    if expressed.refused:
        return Outcome(run=run, target=target, refused="; ".join(expressed.refused))
    text = render(chosen.syntaxes[0], expressed.settings, launch=expressed.launch)
    reading = read_text(text, file=chosen.file_name, framework=target)
    found = lint(reading, model=job.model, cluster=job.cluster, edits=False)
    back = replace(found.drafted.job, stack=job.stack)
    alarms = [(f.code, f.message) for f in found.findings if f.severity is Severity.ERROR]
    return Outcome(
        run=run,
        target=target,
        alarms=tuple(alarms),
        differs=tuple(sorted(_differences(job, back))),
        figures=tuple(_other_figures(job, back)),
    )


def _differences(before: Job, after: Job) -> Iterable[str]:
    """Fields of the plan that are not the same after writing and reading."""
    first, second = (_words(job) for job in (before, after))
    return (name for name in first if first.get(name) != second.get(name))


def _words(job: Job) -> dict[str, Any]:
    """The plan in words; a vocabulary that is not padded has its own size."""
    words = dict(plan_words(job.plan, every=True))
    words["padded_vocab_size"] = words.get("padded_vocab_size") or job.model.vocab_size
    return words


def _other_figures(before: Job, after: Job) -> Iterable[str]:
    """Which predictions are not the same after writing and reading."""
    first, second = evaluate(before), evaluate(after)
    pairs = {
        "memory": (first.peak_bytes, second.peak_bytes),
        "time": (first.step_s, second.step_s),
    }
    return (n for n, (a, b) in pairs.items() if abs(_number(b) / _number(a) - 1) > SAME)


def _number(value: Any) -> float:
    return float(np.max(value))


def figures(runs: Sequence[Any]) -> dict[str, Any]:
    """Counts by framework: runs written, clean, the same again; alarms, and why not written."""
    tally = Tally()
    unclean: list[str] = []
    for run in runs:
        job = job_of(run.row)
        target = written_as(run.row.text("framework"))
        if isinstance(job, Inexpressible):
            tally.by_framework.setdefault(target, Counter())["no job"] += 1
            continue
        found = judged(run.id, job, target)
        unclean += [found.run] if found.alarms else []
        tally.add(found)
    total = sum(tally.by_framework.values(), Counter())
    return {
        "runs": len(runs),
        **{name.replace(" ", "_"): total[name] for name in ("written", "clean", *_AGAIN)},
        "clean_share": total["clean"] / max(total["written"], 1),
        "by_framework": {name: dict(c) for name, c in sorted(tally.by_framework.items())},
        "alarms": dict(tally.alarms.most_common()),
        "examples": tally.examples,
        "unclean": unclean,
        "differs": dict(tally.differs.most_common()),
        "not_written": dict(tally.refused.most_common()),
    }


_AGAIN = ("same plan", "same memory", "same time")


# What is printed


def page(found: dict[str, Any]) -> str:
    """The page about false alarms, in Markdown."""
    columns = ("written", "clean", *_AGAIN, "not written", "no job")
    rows = [
        (name, *(str(counts.get(c, 0)) for c in columns))
        for name, counts in found["by_framework"].items()
    ]
    alarms = [(name, str(n), found["examples"][name]) for name, n in found["alarms"].items()]
    return "\n".join(
        (
            "# False alarms",
            "",
            *_PREAMBLE,
            "",
            f"{found['clean']} of {found['written']} runs that are written pass without an error: "
            f"{found['clean_share']:.2%}.",
            "",
            table(("framework", *columns), rows),
            "",
            "## Every alarm",
            "",
            table(("framework and code", "runs", "for example"), alarms),
            "",
            "## Fields that are not read back as written",
            "",
            table(("framework and field", "runs"), [(k, str(v)) for k, v in _listed(found)]),
            "",
        )
    )


def _listed(found: dict[str, Any]) -> Iterable[tuple[str, int]]:
    return found["differs"].items()


_PREAMBLE = (
    "Every published run is written in its framework's words, read back and checked with the",
    "GPUs that it ran on. It did run, so an error on it is a false alarm. `same plan`, `same",
    "memory` and `same time` count the runs of which the job read back is the one written, or is",
    "predicted to take the same memory and time (within 0.5%). `no job` are rows that do not say",
    "enough of a run. Rerun with `python benchmarks/published.py --write-docs PAGE`.",
)


def _printed(found: dict[str, Any]) -> None:
    print(f"{found['written']} of {found['runs']} runs written, {found['clean_share']:.2%} clean")
    for name, counts in found["by_framework"].items():
        print(f"  {name:<16}", ", ".join(f"{k} {v}" for k, v in counts.items()))
    for title in ("alarms", "examples", "differs", "not_written"):
        print(title)
        for name, value in found[title].items():
            print(f"  {name}: {value}")
    print("unclean", ",".join(found["unclean"]))


def _chosen(arguments: argparse.Namespace) -> list[Any]:
    """The runs that are asked for."""
    runs = (read_runs(arguments.runs) if arguments.runs else packaged_runs()).rows
    if arguments.only:
        wanted = set(arguments.only.split(","))
        return [run for run in runs if run.id in wanted]
    every = QUICK if arguments.quick else arguments.every
    return list(runs[arguments.offset :: every])


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help=f"every {QUICK}th run")
    parser.add_argument("--every", type=int, default=1, help="every Nth run")
    parser.add_argument("--offset", type=int, default=0, help="from the Kth on")
    parser.add_argument("--only", default="", help="these runs, by id")
    parser.add_argument("--runs", default="", help="a file of runs; default the packaged ones")
    parser.add_argument("--write-docs", type=Path, help="write the page there")
    arguments = parser.parse_args()
    found = figures(_chosen(arguments))
    if arguments.write_docs:
        arguments.write_docs.write_text(page(found), encoding="utf-8")
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        _printed(found)


if __name__ == "__main__":
    main()
