"""Agreement of `check` with the frameworks' own validation, on random configurations.

    python benchmarks/parity.py [--quick] [--json] [--plans N] [--seed S] [--only NAME]

Each framework that is installed draws configurations near legal ones, judges them by its own
constructors and validators, and `check` judges the files that state them (tests/parity/frameworks).
Printed are the plans, how many both refuse and both accept, how many only one of them refuses, and
every kind of disagreement with an example and, where it is meant, its reason. Exit status 1 when a
framework agrees on less than 99%.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

SUBJECTS = {  # module of the comparison -> package that judges
    "megatron_core": "megatron.core",
    "torchtitan_trainer": "torchtitan",
    "torch_schedules": "torch",
    "accelerate_launch": "accelerate",
    "deepspeed_config": "deepspeed",
}
TARGET = 0.99
PLANS, QUICK = 1000, 100
FOLDER = Path(__file__).parents[1] / "tests" / "parity" / "frameworks"


def measure(*, plans: int, seed: int, only: str = "") -> dict[str, Any]:
    """The report of every framework that is installed, by name."""
    sys.path.insert(0, str(FOLDER))
    comparing = importlib.import_module("comparing")
    found: dict[str, Any] = {}
    for module, package in SUBJECTS.items():
        if only and only not in module:
            continue
        if not is_installed(package):
            found[module] = {"skipped": f"{package} is not installed"}
            continue
        subject = importlib.import_module(module).SUBJECT
        compared = comparing.compare(subject, plans=plans, seed=seed)
        found[module] = comparing.report(compared)
    return found


def is_installed(package: str) -> bool:
    """Whether a package, or a part of one, can be imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def missed(report: dict[str, Any]) -> list[str]:
    """The frameworks that agree on too little."""
    return [name for name, found in report.items() if found.get("agreement", 1.0) < TARGET]


def lines(report: dict[str, Any]) -> list[str]:
    """The report as text."""
    text: list[str] = []
    for name, found in report.items():
        if "skipped" in found:
            text.append(f"{name}: skipped, {found['skipped']}")
            continue
        text.append(
            f"{name}: {found['plans']} plans, both refuse {found['both_refuse']}, both accept "
            f"{found['both_accept']}, only we refuse {found['only_we_refuse']}, only they refuse "
            f"{found['only_they_refuse']}: {found['agreement']:.2%} agree"
        )
        for kind in found["disagreements"]:
            reason = f" (meant: {kind['reason']})" if kind["reason"] else ""
            text.append(f"  {kind['times']} x {kind['kind']}{reason}")
            for example in kind["examples"]:
                text += [f"      {line}" for line in example["text"].splitlines()]
    return text + [f"MISSED {name}" for name in missed(report)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plans", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a comparison's name")
    asked = parser.parse_args()
    plans = asked.plans or (QUICK if asked.quick else PLANS)
    report = measure(plans=plans, seed=asked.seed, only=asked.only)
    print(json.dumps(report, indent=2) if asked.json else "\n".join(lines(report)))
    return 1 if missed(report) else 0


if __name__ == "__main__":
    sys.exit(main())
