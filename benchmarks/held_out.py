"""Step times of runs that nothing was fitted to, with what peers reach on the same file.

The file is the multi-node part of vTrain's ground truth (VIA-Research/vTrain@f8dda84, MIT): 109
Megatron-DeepSpeed runs of 3.6B to 175B parameters on 64 to 512 A100. The peers' figures were
measured on it with their own code (Calculon@caa4b11 at two network rates, llm-analysis@d841e40 at
two efficiencies); vTrain's own is the claim of its paper (MICRO 2024).

    python benchmarks/held_out.py [--json] [--quick]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from meshwright.evidence.forecasts import forecasts
from meshwright.evidence.ranking import groups
from meshwright.evidence.runs import read_runs

RUNS = Path(__file__).parent / "data" / "vtrain-multi-node.csv"
PEERS = (
    ("Calculon, 12.5 GB/s", 0.196, 0.013, 0.045),
    ("Calculon, 25 GB/s", 0.153, 0.013, 0.045),
    ("llm-analysis, efficiency 0.5", 0.176, 0.334, 0.441),
    ("llm-analysis, default", 0.484, 0.334, 0.441),
    ("vTrain, as claimed", 0.147, None, None),
)


def figures(runs_path: Path) -> dict[str, float]:
    """Mean, median and 90th percentile of the absolute error, bias, and the ranking's regret."""
    runs = [run for run in read_runs(runs_path) if run.step_time_s]
    found = forecasts([run.row for run in runs])
    kept = [(r, f) for r, f in zip(runs, found, strict=True) if f.step_time_s]
    off = np.array([f.step_time_s / r.step_time_s - 1 for r, f in kept])
    ranked = groups([r for r, _ in kept], {r.id: f.step_time_s for r, f in kept})
    regrets = [group.regret for group in ranked]
    return {
        "rows": len(runs),
        "predicted": len(kept),
        "mean_abs_error": float(np.mean(np.abs(off))),
        "median_abs_error": float(np.median(np.abs(off))),
        "p90_abs_error": float(np.quantile(np.abs(off), 0.9)),
        "bias": float(np.mean(off)),
        "mean_regret": float(np.mean(regrets)),
        "worst_regret": float(np.max(regrets)),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="the same: it takes seconds")
    arguments = parser.parse_args()
    ours = figures(RUNS)
    if arguments.json:
        print(json.dumps({"meshwright": ours, "peers": [list(p) for p in PEERS]}, indent=2))
        return
    print(f"{ours['predicted']} of {ours['rows']} held-out runs predicted")
    print(f"{'':30} {'mean':>6} {'regret':>7} {'worst':>6}")
    row = ("meshwright", ours["mean_abs_error"], ours["mean_regret"], ours["worst_regret"])
    for name, mean, regret, worst in (row, *PEERS):
        cells = [f"{v:.1%}" if v is not None else "-" for v in (mean, regret, worst)]
        print(f"{name:30} {cells[0]:>6} {cells[1]:>7} {cells[2]:>6}")
    print(
        f"meshwright: median {ours['median_abs_error']:.1%}, 90th percentile "
        f"{ours['p90_abs_error']:.1%}, bias {ours['bias']:+.1%}"
    )


if __name__ == "__main__":
    main()
