"""meshwright's memory and traffic against its own engine, plan by plan, without a GPU.

    python benchmarks/memory_truth.py [--quick] [--only WORD] [--json]

Measures ranks of each plan as `meshwright measure` does (the training step of the engine on fake
tensors and a fake process group), predicts them in closed form, and prints the relative error of
weights, gradients, optimizer states and activations, of the peak, and whether calls and bytes of
every axis and collective are equal. Exit status 1 when a category is off by more than 3%, a peak by
more than 5%, or any traffic differs. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from meshwright.api.measuring import measure
from meshwright.hardware.cluster import Cluster, Gpu, Link
from meshwright.model.catalogue import load
from meshwright.plan.job import Job, Workload, world_size
from meshwright.plan.plan import ContextParallel, Plan, Recompute, RecomputeModule, Schedule

CATEGORIES = ("weights", "gradients", "optimizer", "activations")
CATEGORY_LIMIT, PEAK_LIMIT = 0.03, 0.05
GIB = 2**30
LLAMA, MOE = "llama-3-8b", "qwen3-30b-a3b"
FULL = {"recompute": int(Recompute.FULL)}
SELECTIVE = {
    "recompute": int(Recompute.SELECTIVE),
    "recompute_modules": int(RecomputeModule.ALTERNATE_MATMULS),
}
STATES = {  # of plans whose parameters FSDP shards, and of those where it does not
    True: {"param_bytes": 4, "grad_bytes": 4, "optimizer_state_bytes": 4, "zero_stage": 3},
    False: {
        "param_bytes": 2,
        "grad_bytes": 2,
        "reduce_bytes": 2,
        "optimizer_state_bytes": 2,
        "zero_stage": 0,
    },
}
MASTERS = {  # bf16 with fp32 master weights and fp32 reductions, what most runs train in
    "param_bytes": 2,
    "grad_bytes": 4,
    "reduce_bytes": 4,
    "optimizer_state_bytes": 4,
    "master_weights": True,
}
COLUMNS = "".join(f"{name[:8]:>9s}" for name in (*CATEGORIES, "peak"))
HEADER = f"{'plan':58s}{COLUMNS}{'GiB':>9s}{'traffic':>9s}{'cpu s':>7s}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One plan: fields of `Plan`, the model's name, sequence, micro-batches, pipeline stage."""

    plan: dict[str, Any] = field(default_factory=dict)
    model: str = LLAMA
    seq_len: int = 8192
    microbatches: int = 1
    stage: str = "first"

    @property
    def name(self) -> str:
        """A short name that tells the plan."""
        told = {k: v for k, v in self.plan.items() if k != "recompute_modules"}
        masters = bool(told.get("master_weights"))
        words = [f"{k}={v}" for k, v in told.items() if not (masters and k in MASTERS)]
        words += ["masters"] * masters
        size = f"s{self.seq_len} m{self.microbatches}"
        stage = "" if self.stage == "first" else f" {self.stage}"
        return f"{self.model.partition('-')[0]} {' '.join(words)} {size}{stage}"


def cases() -> list[Case]:
    """The plans measured."""
    return [*sharded(), *tensor(), *experts(), *pipelines(), *contexts(), *masters()]


def sharded() -> list[Case]:
    """FSDP and HSDP, ZeRO 1 to 3."""
    plain = [
        Case(plan={"dp": dp, **kind})
        for dp, kind in ((8, {}), (8, FULL), (64, SELECTIVE), (512, FULL))
    ]
    return [
        *plain,
        Case(plan={"dp": 8}, seq_len=4096, microbatches=2),
        Case(plan={"dp": 16, "micro_batch_size": 4, **FULL}, seq_len=2048),
        Case(plan={"dp": 8, "reshard_after_forward": False}),
        Case(plan={"dp": 64, "dp_replicate": 8, **FULL}),
        Case(plan={"dp": 8, "zero_stage": 2}, seq_len=4096, microbatches=2),
        Case(plan={"dp": 8, "zero_stage": 1}, seq_len=4096, microbatches=4),
    ]


def tensor() -> list[Case]:
    """TP with and without sequence and loss parallelism, alone and with FSDP."""
    without = {"sequence_parallel": False}
    return [
        Case(plan={"tp": 8}),
        Case(plan={"tp": 8, "loss_parallel": False}),
        Case(plan={"tp": 8, **without}),
        Case(plan={"tp": 4, **FULL}),
        Case(plan={"tp": 8, **SELECTIVE}),
        Case(plan={"dp": 8, "tp": 8, **FULL}),
        Case(plan={"dp": 32, "tp": 2}, seq_len=4096),
        Case(plan={"dp": 8, "tp": 4, "dp_replicate": 2, **without, **FULL}, microbatches=2),
    ]


def experts() -> list[Case]:
    """Routed experts, with and without ep, etp, tp."""
    return [
        Case(model=MOE, plan={"dp": 8}, seq_len=4096),
        Case(model=MOE, plan={"dp": 64, **FULL}, seq_len=4096),
        Case(model=MOE, plan={"dp": 8, "ep": 8}, seq_len=4096),
        Case(model=MOE, plan={"dp": 64, "ep": 8, **FULL}, seq_len=4096),
        Case(model=MOE, plan={"dp": 16, "tp": 2, "ep": 8}, seq_len=4096),
        Case(model=MOE, plan={"dp": 16, "tp": 4, "ep": 8, "etp": 2, **FULL}, seq_len=4096),
    ]


def pipelines() -> list[Case]:
    """Several schedules, first and last stage."""
    rows = [
        (Schedule.ONE_F_ONE_B, 1, "first"),
        (Schedule.ONE_F_ONE_B, 1, "last"),
        (Schedule.GPIPE, 1, "first"),
        (Schedule.ONE_F_ONE_B, 2, "first"),
        (Schedule.ZB_H1, 1, "second"),
        (Schedule.ZB_V, 1, "first"),
        (Schedule.V_HALF, 1, "last"),
        (Schedule.DUALPIPE_V, 1, "first"),
    ]
    alone = [
        Case(
            plan={"pp": 4, "vpp": vpp, "schedule": int(kind)},
            seq_len=2048,
            microbatches=8,
            stage=stage,
        )
        for kind, vpp, stage in rows
    ]
    return [
        *alone,
        Case(plan={"pp": 4, "dp": 8, "zero_stage": 2, **FULL}, microbatches=8, seq_len=4096),
        Case(plan={"pp": 4, "tp": 2, "dp": 2, "zero_stage": 1}, microbatches=8, seq_len=4096),
        Case(model=MOE, plan={"pp": 2, "dp": 8, "ep": 4}, microbatches=4, seq_len=2048),
    ]


def contexts() -> list[Case]:
    """The three methods of context parallelism, alone and with tp and pp."""
    ring, gather, swap = (
        {"context_parallel": int(kind)}
        for kind in (ContextParallel.RING, ContextParallel.ALL_GATHER, ContextParallel.ULYSSES)
    )
    return [
        Case(plan={"cp": 4, "dp": 2, **ring, **FULL}, seq_len=32768),
        Case(plan={"cp": 4, "dp": 2, **gather}),
        Case(plan={"cp": 4, "dp": 2, **swap}),
        Case(plan={"cp": 2, "tp": 2, "dp": 4, **ring}),
        Case(plan={"cp": 2, "pp": 2, "dp": 2, **gather}, microbatches=4),
    ]


def masters() -> list[Case]:
    """ZeRO 0 to 3 of bf16 weights with fp32 masters, with pp, tp, ep and every kind of schedule."""
    zero1, zero2, zero3 = ({"zero_stage": stage, **MASTERS} for stage in (1, 2, 3))
    zb, v_half = ({"schedule": int(kind)} for kind in (Schedule.ZB_H1, Schedule.V_HALF))
    many, some = {"microbatches": 8, "seq_len": 4096}, {"microbatches": 8, "seq_len": 2048}
    return [
        Case(plan={"dp": 8, **zero1}, microbatches=4, seq_len=4096),
        Case(plan={"dp": 4, "tp": 2, **zero2}, microbatches=2, seq_len=4096),
        Case(plan={"pp": 4, "tp": 2, "dp": 2, **zero1, **FULL}, **many),
        Case(plan={"pp": 2, "dp": 4, **zero2}, **some, stage="last"),
        Case(plan={"pp": 4, "tp": 2, "dp": 2, "zero_stage": 0, **MASTERS}, **some),
        Case(plan={"pp": 4, "vpp": 2, "dp": 4, **zero3, **FULL}, **many, stage="second"),
        Case(plan={"pp": 2, "dp": 2, **zero3, "schedule": int(Schedule.GPIPE)}, **some),
        Case(plan={"pp": 4, "dp": 2, **zero1, **zb}, **some, stage="second"),
        Case(plan={"pp": 4, "tp": 2, "dp": 2, **zero2, **v_half}, **some),
        Case(model=MOE, plan={"pp": 2, "dp": 8, "ep": 4, **zero1}, microbatches=4, seq_len=2048),
        Case(
            model="llama-3.1-70b",
            plan={"tp": 4, "pp": 4, "dp": 4, **zero1, **FULL},
            microbatches=128,
        ),
    ]


def quick_cases() -> list[Case]:
    """A handful that covers every axis."""
    return [
        Case(plan={"dp": 8}),
        Case(plan={"dp": 8, "tp": 8, **FULL}),
        Case(model=MOE, plan={"dp": 8, "ep": 8}, seq_len=4096),
        Case(plan={"pp": 4}, seq_len=2048, microbatches=8),
        Case(plan={"cp": 4, "dp": 2, "context_parallel": int(ContextParallel.RING)}),
    ]


def job_of(case: Case) -> Job:
    """The case as meshwright sees it."""
    degree = {"dp": 1, "cp": 1} | case.plan
    states = STATES[degree["dp"] * degree["cp"] > 1]
    plan = Plan(**{"master_weights": False, **states, **case.plan})
    gpu = Gpu(name="any", generation="any", memory_bytes=0, memory_bytes_per_s=0, peak_flops={})
    link = Link(name="any", kind="nvlink", domain=8, bytes_per_s=1, latency_s=1)
    ranks = int(world_size(plan))
    cluster = Cluster(gpu=gpu, num_gpus=ranks, gpus_per_node=8, links=(link,))
    batch = int(plan.dp) * int(plan.micro_batch_size) * case.microbatches
    workload = Workload(seq_len=case.seq_len, global_batch_size=batch)
    return Job(model=load(case.model), cluster=cluster, workload=workload, plan=plan, stack="fsdp")


def compare(case: Case) -> dict[str, Any]:
    """Measured and predicted figures of a case, and relative errors."""
    start_s = time.process_time()
    (found,) = measure(job_of(case), stage=case.stage)
    lines = {line.name: line for line in found.lines if line.group == "memory"}
    traffic = [line for line in found.lines if line.group == "traffic"]
    errors = {name: lines[name].difference for name in (*CATEGORIES, "peak")}
    return {
        "plan": case.name,
        "errors": errors,
        "measured": {name: line.measured for name, line in lines.items()},
        "predicted": {name: line.predicted for name, line in lines.items()},
        "phases": {
            line.name: (line.measured, line.predicted)
            for line in found.lines
            if line.group == "phase"
        },
        "traffic": {f"{x.name}.{x.unit}": (x.measured, x.predicted) for x in traffic},
        "traffic_equal": all(line.is_equal for line in traffic),
        "cpu_s": time.process_time() - start_s,
    }


def worst_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Largest absolute error of each category, and of the peak."""
    return {n: max(abs(r["errors"][n] or 0.0) for r in rows) for n in (*CATEGORIES, "peak")}


def within_limits(rows: list[dict[str, Any]]) -> bool:
    """True when memory is as near as promised and traffic is equal."""
    worst = worst_of(rows)
    near = worst["peak"] <= PEAK_LIMIT and all(worst[n] <= CATEGORY_LIMIT for n in CATEGORIES)
    return near and all(row["traffic_equal"] for row in rows)


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    errors = "".join(f"{row['errors'][n] or 0.0:+9.1%}" for n in (*CATEGORIES, "peak"))
    measured = row["measured"]["peak"] / GIB
    traffic = "equal" if row["traffic_equal"] else "differs"
    return f"{row['plan']:58s}{errors}{measured:9.2f}{traffic:>9s}{row['cpu_s']:7.1f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="five plans instead of all")
    parser.add_argument("--only", default="", help="plans whose name contains this")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(arguments)
    chosen = [c for c in (quick_cases() if options.quick else cases()) if options.only in c.name]
    if not chosen:
        parser.error(f"no plan's name contains {options.only!r}")
    rows = []
    if not options.json:
        print(HEADER)
    for case in chosen:
        rows.append(compare(case))
        if not options.json:
            print(line(rows[-1]), flush=True)
    worst = worst_of(rows)
    equal = sum(row["traffic_equal"] for row in rows)
    if options.json:
        print(json.dumps({"rows": rows, "worst": worst, "plans": len(rows)}))
    else:
        words = ", ".join(f"{n} {v:.1%}" for n, v in worst.items())
        print(f"worst {words}; traffic equal in {equal} of {len(rows)} plans")
    return 0 if within_limits(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
