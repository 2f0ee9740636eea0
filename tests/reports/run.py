"""Runs cases from public bug reports: `python tests/reports/run.py FOLDER --json [--only ID]`.

For every case in FOLDER the product gets what its user had (see `given.py`), and its answer is
compared with the expected one (see `judging.py`). Prints a list of records {id, kind, expected,
got, ok, why}; without --json a line for each and a count. Exits with 1 when a case is not right.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import yaml
from answer import ask, got_of
from given import given_of
from judging import judge, not_compared


def cases_in(folder: Path) -> list[dict[str, Any]]:
    """The cases of a folder, one a file."""
    files = sorted((*folder.glob("*.yaml"), *folder.glob("*.yml")))
    read = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in files)
    return [case for case in read if isinstance(case, dict) and "input" in case]


def result_of(case: dict[str, Any]) -> dict[str, Any]:
    """One case's record."""
    answer = ask(str(case["input"]), given_of(case))
    expected = case.get("expected") or {}
    judged = judge(expected, answer)
    return {
        "id": case.get("id"),
        "kind": case.get("kind"),
        "expected": expected,
        "got": {**got_of(answer), "figures": dict(answer.figures)},
        "ok": judged.ok,
        "why": judged.why,
        "not_compared": not_compared(expected),
    }


def lines(results: Iterable[dict[str, Any]]) -> Iterable[str]:
    """Results for people."""
    found = list(results)
    for one in found:
        mark = "ok  " if one["ok"] else "MISS"
        yield f"{mark} {one['id']} {one['expected'].get('verdict')}: {one['why']}"
    yield f"{sum(r['ok'] for r in found)} of {len(found)} right"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", metavar="ID", action="append", help="run this case alone")
    given = parser.parse_args(arguments)
    chosen = [c for c in cases_in(given.folder) if not given.only or c.get("id") in given.only]
    results = [result_of(case) for case in chosen]
    if given.json:
        print(json.dumps(results, indent=1, default=str))
    else:
        print("\n".join(lines(results)))
    return 0 if results and all(r["ok"] for r in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
