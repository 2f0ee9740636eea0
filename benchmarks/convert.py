"""Conversion of real recipes between all frameworks that are written.

Every configuration under tests/frameworks/recipes is converted to every framework, what is written
is read back and checked with the GPUs of the recipe, and its memory and step time are predicted on
the same software stack as before. A cell is refused (with reasons), equal (both within 0.1%),
explained (every difference of the plan is told, with its cost), or wrong.

    python benchmarks/convert.py [--json] [--quick] [--recipe NAME] [--to NAME]
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.api.changed import differences
from meshwright.api.checking import Given, cluster_of, stated
from meshwright.api.converting import again_of, conversion
from meshwright.base.finding import Severity
from meshwright.frameworks.framework import all_frameworks
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_files
from meshwright.rules.lint import lint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.converting import Conversion
    from meshwright.frameworks.framework import Framework
    from meshwright.frameworks.jobs import Drafted
    from meshwright.frameworks.reading import Reading

RECIPES = Path(__file__).parents[1] / "tests/frameworks/recipes"
CLOSE = 1e-3
QUICK = 6  # every so many recipes with --quick
ROOM = frozenset({"CMP121", "CMP122", "CMP303", "MOD217", "CMP212"})  # it does not fit
KINDS = ("equal", "explained", "refused", "wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A configuration with what a user would give beside it, and the job that it states."""

    name: str
    framework: str
    reading: Reading
    drafted: Drafted


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One conversion: its kind, what is wrong with it, and the relative changes."""

    recipe: str
    target: str
    kind: str
    faults: tuple[str, ...] = ()
    memory: float = 0.0
    step_time: float = 0.0
    changed: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    fits: bool = True


def recipes() -> list[dict[str, Any]]:
    """The index of the recipes."""
    return list(tomllib.loads((RECIPES / "recipes.toml").read_text(encoding="utf-8"))["recipe"])


def recipe(entry: dict[str, Any]) -> Recipe:
    """A recipe as it is read."""
    given = Given(**{k: entry[k] for k in ("model", "gpus", "nodes", "sets") if k in entry})
    (read,) = read_files([RECIPES / name for name in entry["files"]])
    reading, model = stated(read, given)
    drafted = draft(reading, model=model, cluster=cluster_of(reading, given))
    name = Path(entry["files"][0]).name
    return Recipe(name=name, framework=entry["framework"], reading=reading, drafted=drafted)


def targets() -> tuple[Framework, ...]:
    """The frameworks that are written."""
    return tuple(f for f in all_frameworks() if f.express is not None)


def judged(source: Recipe, target: Framework) -> Cell:
    """How one conversion fares."""
    found = conversion(source.reading, source.drafted, target)
    where = {"recipe": source.name, "target": target.name}
    if found.refused:
        return Cell(kind="refused", reasons=tuple(f.message for f in found.refused), **where)
    assert found.before is not None  # a recipe states model and hardware
    assert found.after is not None
    memory = found.after.peak_bytes / found.before.peak_bytes - 1
    step = found.after.step_time_s / found.before.step_time_s - 1
    faults = tuple(_faults(source, target, found))
    equal = max(abs(memory), abs(step)) < CLOSE
    return Cell(
        kind="wrong" if faults else "equal" if equal else "explained",
        faults=faults,
        memory=memory,
        step_time=step,
        changed=tuple(f.key for f in found.differences),
        fits=not any(f.code == "CFG304" for f in found.lost),
        **where,
    )


def _faults(source: Recipe, target: Framework, found: Conversion) -> Iterator[str]:
    """What is wrong with a conversion that was written."""
    job = source.drafted.job
    again = again_of(found.files, job, target)
    linted = lint(again, model=job.model, cluster=job.cluster, edits=False)
    full = any(f.code == "CFG304" for f in found.lost)
    for finding in linted.findings:
        if finding.severity is Severity.ERROR and not (full and finding.code in ROOM):
            yield f"{finding.code}: {finding.message}"
    yield from (f"unknown: {s.spelled}" for s in again.config.unknown)
    told = {name for f in found.differences for name in f.key.split(",")}
    untold = {*differences(job, linted.drafted.job)} - told
    yield from (f"not told: {name}" for name in sorted(untold))
    yield from (f"no reason: {f.message}" for f in found.differences if not f.reason)
    after = linted.drafted.job.workload
    for name in ("seq_len", "global_batch_size"):
        if getattr(after, name) != getattr(job.workload, name):
            yield f"{name}: {getattr(job.workload, name)} becomes {getattr(after, name)}"


def _line(cells: list[Cell]) -> str:
    marks = {"equal": "=", "explained": "~", "refused": "-", "wrong": "X"}
    row = "  ".join(f"{marks[c.kind]:>2}" for c in cells)
    return f"{cells[0].recipe:34}{row}"


def _print(rows: list[list[Cell]], figures: dict[str, Any]) -> None:
    names = [cell.target for cell in rows[0]]
    print("= equal within 0.1%   ~ differences told   - refused   X wrong\n")
    for number, name in enumerate(names):
        print(" " * 34 + "    " * number + f" {name}")
    for cells in rows:
        print(_line(cells))
    for cell in (c for row in rows for c in row if c.kind == "wrong"):
        print(f"\n{cell.recipe} to {cell.target}: " + "; ".join(cell.faults))
    print("\n" + ", ".join(f"{name} {value}" for name, value in figures.items()))


def figures(rows: list[list[Cell]], seconds: float) -> dict[str, Any]:
    """Counts and shares over the matrix."""
    counts = Counter(cell.kind for row in rows for cell in row)
    total = sum(counts.values())
    written = total - counts["refused"]
    return {
        "conversions": total,
        **{kind: counts[kind] for kind in KINDS},
        "written": written,
        "no_longer_fits": sum(not c.fits for row in rows for c in row),
        "share_equal": round(counts["equal"] / max(written, 1), 4),
        "share_equal_or_explained": round(1 - counts["wrong"] / max(written, 1), 4),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Prints the matrix, or JSON with every cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--recipe", default="")
    parser.add_argument("--to", default="")
    asked = parser.parse_args()
    began = time.perf_counter()
    entries = [e for e in recipes() if asked.recipe in e["files"][0]]
    chosen = [t for t in targets() if asked.to in t.name]
    sources = [recipe(entry) for entry in (entries[::QUICK] if asked.quick else entries)]
    rows = [[judged(source, target) for target in chosen] for source in sources]
    counts = figures(rows, time.perf_counter() - began)
    if asked.json:
        cells = [{n: getattr(c, n) for n in Cell.__slots__} for row in rows for c in row]
        print(json.dumps({**counts, "cells": cells}, indent=2))
    else:
        _print(rows, counts)


if __name__ == "__main__":
    main()
