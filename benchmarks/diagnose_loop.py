"""Faults planted in training on this machine, and what `meshwright diagnose` says of each.

    python benchmarks/diagnose_loop.py [--quick] [--only FAULT] [--keep FOLDER] [--json]

Trains a small model on CPU ranks with one fault at a time (a slow loader, a rank whose core is
taken, uneven stages, a collective for every matrix, needless recompute, checkpoints that training
waits for), traces some steps, and diagnoses the traces: the planted cause must be named first.
Then the machine is calibrated from the traces of a run without faults (`diagnose --calibrate`), and
`predict` of that run set beside its measured step. Exit status 1 when a cause is not named first or
a prediction is off by more than 15%. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.train.settings import Recipe, Run, Saving, Spec, Telling

if TYPE_CHECKING:
    from collections.abc import Callable

RANKS, LIMIT = 2, 0.15
COMMAND = (sys.executable, "-m", "meshwright")
PROFILED = (4, 7)  # steps
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 1536,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
PLAN = """[model]
{model}
[cluster]
path = "{machine}"
[workload]
seq_len = 256
global_batch = {batch}
[plan]
precision = "fp32"
micro_batch_size = 2
{plan}
"""
SHARDED = "dp = 2\nzero_stage = 2"
PIPED = 'pp = 2\nschedule = "1f1b"'


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault: the plan that it is planted in, what each rank does first, what should be said."""

    name: str
    codes: tuple[str, ...]  # any of these first
    plan: str = SHARDED
    batch: int = 8
    plant: Callable[[], None] | None = None
    changes: dict[str, Any] = field(default_factory=dict)


def slow_loader() -> None:
    """Every batch takes 0.4 s to make, and none is made ahead."""
    from meshwright.train.feeding.feeder import Feeder

    whole = Feeder._next_made

    def slow(feeder: Any) -> Any:
        time.sleep(0.4)
        return whole(feeder)

    Feeder._next_made = slow  # type: ignore[method-assign]


def slow_rank() -> None:
    """Rank 1 shares its core with another process that never rests."""
    import torch

    rank = torch.distributed.get_rank()
    cores = sorted(os.sched_getaffinity(0))
    core = cores[rank % len(cores)]
    os.sched_setaffinity(0, {core})
    parent = os.getpid()
    if rank == 1 and os.fork() == 0:
        while os.getppid() == parent:
            for _ in range(1_000_000):
                pass
        os._exit(0)


def tiny_groups() -> None:
    """Every linear layer gathers its own weight and reduces its own gradient."""
    import torch
    from torch.distributed.fsdp import FSDPModule

    from meshwright.train.parallel import sharding

    whole = sharding.fully_shard

    def fine(module: Any, **options: Any) -> Any:
        for name, child in module.named_modules():
            is_own = bool(name) and not name.endswith("lm_head")  # its weight is the embedding's
            if is_own and isinstance(child, torch.nn.Linear) and not isinstance(child, FSDPModule):
                whole(child, **options)
        return whole(module, **options)

    sharding.fully_shard = fine


def faults() -> list[Fault]:
    """What is planted; the first is none."""
    often = Saving(every_steps=1, asynchronous=False, last=False, keep=1)
    return [
        Fault(name="none", codes=()),
        Fault(name="slow loader", codes=("DAT901", "DAT902", "DAT909"), plant=slow_loader),
        Fault(name="slow rank", codes=("CMP905",), plant=slow_rank),
        Fault(
            name="uneven stages",
            codes=("MOD905", "MOD906"),
            plan=PIPED + "\nfirst_stage_layers = 2",
            batch=16,
        ),
        Fault(name="tiny buckets", codes=("COM907",), plant=tiny_groups),
        Fault(name="needless recompute", codes=("MOD908",), plan=SHARDED + '\nrecompute = "full"'),
        Fault(name="synchronous checkpoint", codes=("HST902",), changes={"saving": often}),
    ]


def spec_of(fault: Fault, folder: Path, *, machine: Path, steps: int) -> Spec:
    """The run of a fault."""
    model = "\n".join(f"{key} = {json.dumps(value)}" for key, value in CONFIG.items())
    run = Run(
        steps=steps,
        out=str(folder),
        recipe=Recipe(learning_rate=1e-3, schedule="constant"),
        saving=Saving(every_steps=-1, last=False),
        telling=Telling(every_steps=1000, profile=PROFILED),
    )
    folder.mkdir(parents=True, exist_ok=True)
    text = PLAN.format(model=model, machine=machine, plan=fault.plan, batch=fault.batch)
    return Spec(plan_toml=text, config=CONFIG, run=replace(run, **fault.changes))


def trained(fault: Fault, folder: Path, *, machine: Path, steps: int) -> float:
    """Trains with a fault; the median step that was not traced, in seconds."""
    from meshwright.train.local import run_ranks
    from meshwright.train.telling.metrics import METRICS, read_metrics

    spec = spec_of(fault, folder, machine=machine, steps=steps)
    (folder / "plan.toml").write_text(spec.plan_toml)
    run_ranks(_rank, RANKS, fault, spec, timeout_s=300)
    told = read_metrics(folder / METRICS)
    plain = [r["step_s"] for r in told if r["step"] > 2 and not _is_traced(r["step"])]
    return statistics.median(plain)


def _is_traced(step: int) -> bool:
    return PROFILED[0] <= step <= PROFILED[1] + 1


def _rank(fault: Fault, spec: Spec) -> None:
    import torch

    from meshwright.train import loop
    from meshwright.train.watch.heart import Heart
    from meshwright.train.watch.signals import Stop

    log = os.open(Path(spec.run.out) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    if fault.plant is not None:
        fault.plant()
    loop.train(spec, device=torch.device("cpu"), heart=Heart.here({}), stop=Stop())


def judged(fault: Fault, folder: Path, *, machine: Path, steps: int) -> dict[str, Any]:
    """One fault, trained and diagnosed: what was said first, and whether it is right."""
    from meshwright.api.diagnosing import diagnose

    step_s = trained(fault, folder, machine=machine, steps=steps)
    found = diagnose([folder / "traces"], job=folder / "plan.toml")
    first = found.causes[0] if found.causes else None
    code = first.code if first is not None else ""
    known = fault.codes or tuple(code for f in faults() for code in f.codes)
    return {
        "fault": fault.name,
        "step_s": step_s,
        "traced_step_s": found.step_us / 1e6 if found.step_us else None,
        "first": code,
        "title": first.title if first is not None else "nothing",
        "share": first.share if first is not None else 0.0,
        "right": (code in fault.codes) if fault.codes else code not in known,
    }


def machine_file(folder: Path, given: str | None) -> Path:
    """A cluster file of this machine: the one given, or what `meshwright calibrate` writes."""
    if given is not None:
        return Path(given).absolute()
    written = folder / "machine.toml"
    if not written.exists():
        asked = [*COMMAND, "calibrate", "--quick", "-o", str(written)]
        subprocess.run(asked, check=True, capture_output=True)
    return written.absolute()


def predicted(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """The run's step as predicted before, and on the machine that its own traces calibrate."""
    written, plan = folder / "traced-machine.toml", folder / "plan.toml"
    asked = [*COMMAND, "diagnose", str(folder / "traces"), "--plan", str(plan)]
    asked += ["--calibrate", "-o", str(written)]
    subprocess.run(asked, check=True, capture_output=True)
    here = plan.with_name("plan-traced.toml")
    lines = plan.read_text().splitlines()
    lines[lines.index("[cluster]") + 1] = f"path = {json.dumps(str(written.absolute()))}"
    here.write_text("\n".join(lines) + "\n")
    before, after = (_step_s(file) for file in (plan, here))
    measured_s = row["traced_step_s"]
    return {
        "measured_s": measured_s,
        "untraced_s": row["step_s"],
        "predicted_before_s": before,
        "predicted_s": after,
        "ratio": after / measured_s,
    }


def _step_s(plan: Path) -> float:
    """What `meshwright predict` says."""
    asked = [*COMMAND, "predict", str(plan), "--json"]
    said = subprocess.run(asked, check=True, capture_output=True, text=True)
    return float(json.loads(said.stdout)["prediction"]["step_s"])


def main() -> None:
    """Plants, trains, diagnoses; prints a line a fault."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="two faults, fewer steps")
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--keep", help="a folder that keeps runs and traces")
    parser.add_argument("--machine", help="a cluster file of `meshwright calibrate`; else made")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    chosen = [f for f in faults() if asked.only in f.name]
    if asked.quick:
        chosen = [f for f in chosen if f.name in ("none", "slow loader")]
    with tempfile.TemporaryDirectory() as folder:
        kept, steps = Path(asked.keep or folder), 9 if asked.quick else 14
        kept.mkdir(parents=True, exist_ok=True)
        machine = machine_file(kept, asked.machine)
        rows, loop = measured(chosen, kept, machine=machine, steps=steps)
    if asked.json:
        print(json.dumps({"faults": rows, "loop": loop}, indent=1))
    else:
        show(rows, loop)
    off = loop is not None and abs(loop["ratio"] - 1) > LIMIT
    sys.exit(1 if off or not all(row["right"] for row in rows) else 0)


def measured(
    chosen: list[Fault], folder: Path, *, machine: Path, steps: int
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """A row a fault, and the prediction of the run without one, where that was asked for."""
    rows, loop = [], None
    for fault in chosen:
        own = folder / fault.name.replace(" ", "-")
        rows.append(judged(fault, own, machine=machine, steps=steps))
        if not fault.codes:
            loop = predicted(own, rows[-1])
    return rows, loop


def show(rows: list[dict[str, Any]], loop: dict[str, Any] | None) -> None:
    """The table."""
    print(f"{'planted':24s}{'step s':>8s}  {'right':6s}{'share':>6s}  named first")
    for row in rows:
        right = "yes" if row["right"] else "NO"
        told = f"{row['first']} {row['title']}"
        print(f"{row['fault']:24s}{row['step_s']:8.3f}  {right:6s}{row['share']:6.1%}  {told}")
    if loop is not None:
        print(
            f"predicted {loop['predicted_before_s']:.3f} s before and {loop['predicted_s']:.3f} s "
            f"calibrated from its traces, measured {loop['measured_s']:.3f} s "
            f"({loop['untraced_s']:.3f} s untraced), ratio {loop['ratio']:.2f} "
            f"(within {LIMIT:.0%})"
        )


if __name__ == "__main__":
    main()
