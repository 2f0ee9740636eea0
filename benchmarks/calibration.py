"""Predicted beside measured step times on this machine, after `meshwright calibrate`.

    python benchmarks/calibration.py [--quick] [--json] [--cluster FILE] [--steps N] [--cpu]

Calibrates (or takes a cluster file that `meshwright calibrate` wrote), predicts the steps of a
small llama under plans of one and two ranks, runs them with the training engine, and prints plan by
plan what was predicted, what was measured and their ratio, then the median error, the worst, and
Spearman's rank correlation. Nothing of the step times goes into the predictions. Needs the [train]
extra and a machine that does nothing else meanwhile; on a busy one `--cpu` compares what the
busiest rank used of a core with the predicted step without its pipeline bubble, which leaves out
how ranks wait for each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.predict import predict
from meshwright.hardware.file import read_cluster
from meshwright.model.config import model_from_config
from meshwright.plan.job import Job, Workload, num_microbatches
from meshwright.plan.plan import ContextParallel, Plan, Recompute, Schedule

SEQ_LEN, GLOBAL_BATCH = 128, 8
MODEL = {
    "model_type": "llama",
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "vocab_size": 8192,
    "tie_word_embeddings": False,
    "max_position_embeddings": 4096,
}
EXACT = {"precision": 0, "param_bytes": 4, "master_weights": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One plan: seconds a step."""

    plan: str
    predicted_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_s / self.measured_s


def plans() -> dict[str, Plan]:
    """What is compared, by name."""
    one = Plan(**EXACT, zero_stage=0)
    gather = int(ContextParallel.ALL_GATHER)
    return {
        "1 rank, mbs 1": one,
        "1 rank, mbs 2": replace(one, micro_batch_size=2),
        "1 rank, mbs 4": replace(one, micro_batch_size=4),
        "1 rank, mbs 8": replace(one, micro_batch_size=8),
        "1 rank, mbs 4, full recompute": replace(
            one, micro_batch_size=4, recompute=int(Recompute.FULL)
        ),
        "dp2, mbs 2": replace(one, dp=2, micro_batch_size=2),
        "zero1 dp2, mbs 2": replace(one, dp=2, micro_batch_size=2, zero_stage=1),
        "zero2 dp2, mbs 2": replace(one, dp=2, micro_batch_size=2, zero_stage=2),
        "fsdp2, mbs 1": replace(one, dp=2, micro_batch_size=1, zero_stage=3),
        "fsdp2, mbs 4": replace(one, dp=2, micro_batch_size=4, zero_stage=3),
        "fsdp2, mbs 2, full recompute": replace(
            one, dp=2, micro_batch_size=2, zero_stage=3, recompute=int(Recompute.FULL)
        ),
        "tp2, mbs 2": replace(one, tp=2, micro_batch_size=2, sequence_parallel=False),
        "tp2 + sp, mbs 2": replace(one, tp=2, micro_batch_size=2),
        "pp2 1f1b, mbs 1": replace(one, pp=2),
        "pp2 1f1b, mbs 2": replace(one, pp=2, micro_batch_size=2),
        "pp2 gpipe, mbs 2": replace(one, pp=2, micro_batch_size=2, schedule=int(Schedule.GPIPE)),
        "cp2 all-gather, mbs 2": replace(
            one, cp=2, micro_batch_size=2, context_parallel=gather, zero_stage=1
        ),
    }


def ranks_of(plan: Plan) -> int:
    """Ranks that a plan occupies."""
    return int(plan.tp * plan.pp * plan.cp * plan.dp)


def job_of(plan: Plan, file: Path) -> Job:
    """The job of a plan on as many ranks of the calibrated machine as it needs."""
    ranks = ranks_of(plan)
    cluster = replace(read_cluster(file), num_gpus=ranks, gpus_per_node=ranks)
    return Job(
        model=model_from_config(MODEL),
        cluster=cluster,
        workload=Workload(seq_len=SEQ_LEN, global_batch_size=GLOBAL_BATCH),
        plan=plan,
    )


def steps_here(plan: Plan, rows: int, steps: int, by_cpu: bool) -> list[float]:
    """Seconds of each of `steps` steps on this rank, after one that is not counted."""
    from meshwright.train.calibrate.hosts import engine_of, synthetic
    from meshwright.train.step import train_step

    engine, optimizers = engine_of(MODEL, plan, SEQ_LEN)
    batches = synthetic(engine, rows=rows)
    now = time.process_time if by_cpu else time.perf_counter
    times = []
    for _ in range(steps + 1):
        begin = now()
        train_step(engine, optimizers, batches, clip_norm=1.0)
        times.append(now() - begin)
    return times[1:]


def compared(name: str, plan: Plan, file: Path, *, steps: int, by_cpu: bool) -> Compared:
    """One plan predicted and run; the fastest of its steps counts."""
    from meshwright.train.local import run_ranks

    job = job_of(plan, file)
    threads = read_cluster(file).gpu.curves.threads
    times = run_ranks(
        steps_here, ranks_of(plan), plan, int(num_microbatches(job)), steps, by_cpu, threads=threads
    )
    measured = min(max(by_rank) for by_rank in zip(*times, strict=True))
    found = predict(job)
    hidden = found.terms["time.bubble"].value if by_cpu else 0.0
    return Compared(plan=name, predicted_s=found.step_time_s - hidden, measured_s=measured)


def spearman(left: list[float], right: list[float]) -> float:
    """Rank correlation; no ties among step times."""
    ranks = [np.argsort(np.argsort(values)) for values in (left, right)]
    return float(np.corrcoef(*ranks)[0, 1])


def summary(rows: list[Compared]) -> dict[str, float]:
    """Errors and rank correlation over all plans."""
    errors = [abs(row.ratio - 1.0) for row in rows]
    return {
        "plans": len(rows),
        "within_20_percent": sum(error <= 0.2 for error in errors),
        "median_error": float(np.median(errors)),
        "worst_error": max(errors),
        "spearman": spearman([r.predicted_s for r in rows], [r.measured_s for r in rows]),
    }


def calibrated(folder: str, *, quick: bool) -> Path:
    """The file of `meshwright calibrate`, with the time it took on stderr."""
    from meshwright.cli.main import run

    file = Path(folder) / "this-machine.toml"
    begin = time.perf_counter()
    code = run(["calibrate", "-o", str(file), *(["--quick"] if quick else [])])
    if code:
        sys.exit(code)
    print(f"calibrated in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    return file


def main() -> None:
    """Calibrates, predicts, runs, compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="calibrate --quick, fewer steps")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cluster", type=Path, help="a file of `meshwright calibrate`")
    parser.add_argument("--steps", type=int, help="timed steps of each plan")
    parser.add_argument("--cpu", action="store_true", help="compare CPU seconds: a busy machine")
    parser.add_argument("--only", default="", help="plans whose name has this in it")
    given = parser.parse_args()
    steps = given.steps or (3 if given.quick else 6)
    with TemporaryDirectory() as folder:
        file = given.cluster or calibrated(folder, quick=given.quick)
        rows = []
        for name, plan in plans().items():
            if given.only not in name:
                continue
            rows.append(compared(name, plan, file, steps=steps, by_cpu=given.cpu))
            row = rows[-1]
            line = f"{name:32} {row.predicted_s:8.3f} {row.measured_s:8.3f} {row.ratio:6.2f}"
            print(line, file=sys.stderr if given.json else sys.stdout, flush=True)
    found = summary(rows)
    if given.json:
        print(json.dumps({"plans": [asdict(r) | {"ratio": r.ratio} for r in rows]} | found))
    else:
        print(" ".join(f"{name} {value:.3g}" for name, value in found.items()))


if __name__ == "__main__":
    main()
