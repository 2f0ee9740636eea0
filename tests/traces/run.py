"""Judge `meshwright diagnose` on a folder of traces with known answers.

    python tests/traces/run.py FOLDER [--json]

FOLDER holds one folder for each trace, with the trace's files and an expected.json beside them. For
each a line, or with --json a list of {trace, ok, misses, unknown}: a miss says key, expected, got
and tolerance, and `unknown` are names in an expected.json that nothing here compares. Exits with 0
if all are ok.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """Judge, print, and say by the exit code whether all is as expected."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="print a list")
    asked = parser.parse_args(arguments)
    folders = sorted(file.parent for file in asked.folder.glob("*/expected.json"))
    if not folders:
        parser.error(f"{asked.folder} has no folder with an expected.json")
    results = [_judged(folder) for folder in folders]
    print(json.dumps(results, indent=1) if asked.json else "\n".join(map(_line, results)))
    return 0 if all(result["ok"] for result in results) else 1


def _judged(folder: Path) -> dict[str, Any]:
    from answers import answer_of
    from comparing_answers import judged

    return judged(folder, answer_of)


def _line(result: dict[str, Any]) -> str:
    head = f"{'ok  ' if result['ok'] else 'MISS'} {result['trace']}"
    misses = [
        f"     {m['key']}: expected {m['expected']}, got {m['got']} (tolerance: {m['tolerance']})"
        for m in result["misses"]
    ]
    return "\n".join([head, *misses, *(f"     not compared: {key}" for key in result["unknown"])])


if __name__ == "__main__":
    sys.exit(main())
