"""meshwright's memory against PyTorch's own tensors, for FSDP and tensor-parallel plans.

    python benchmarks/memory_truth.py [--quick] [--json]

Measures each plan under FakeTensor on a fake process group (`fake_memory.py`), predicts it with
`meshwright.cost.memory`, and prints the relative error of weights, gradients, optimizer states and
activations, and of the peak. Exit status 1 when a category is off by more than 3% or a peak by more
than 5%. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from dataclasses import asdict
from typing import Any

from fake_memory import CONFIGS, Case, Measured, measure
from meshwright.cost.memory import memory
from meshwright.hardware.cluster import Cluster, Gpu, Link
from meshwright.model.generic import decoder
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan, Recompute, RecomputeModule

CATEGORIES = ("weights", "gradients", "optimizer", "activations")
CATEGORY_LIMIT, PEAK_LIMIT = 0.03, 0.05
GIB = 2**30
COLUMNS = "".join(f"{name[:8]:>9s}" for name in (*CATEGORIES, "peak"))
HEADER = f"{'plan':52s}{COLUMNS}{'GiB':>9s}{'ours':>9s}"


def cases() -> list[Case]:
    """The plans measured."""
    kinds = ("none", "selective", "full")
    fsdp = [Case(fsdp=n, recompute=kind) for n in (8, 64, 512) for kind in kinds]
    sizes = [
        Case(fsdp=8, seq_len=4096, micro_batch_size=2),
        Case(fsdp=16, seq_len=2048, micro_batch_size=4, recompute="full"),
        Case(fsdp=32, seq_len=32768, recompute="full"),
        Case(fsdp=8, seq_len=4096, microbatches=2),
        Case(fsdp=8, reshard=False),
        Case(fsdp=8, reshard=False, recompute="full"),
        Case(replicate=8, fsdp=8),
        Case(replicate=4, fsdp=16, recompute="full"),
    ]
    tensor = [Case(tp=8, loss_parallel=lp, recompute=k) for lp in (False, True) for k in kinds]
    more = [
        Case(tp=8, sequence_parallel=False),
        Case(tp=4, recompute="full"),
        Case(tp=2, loss_parallel=True),
    ]
    both = [
        Case(fsdp=8, tp=8, loss_parallel=lp, recompute=k) for lp in (False, True) for k in kinds
    ]
    wide = [Case(fsdp=64, tp=8, recompute="full"), Case(fsdp=32, tp=2, seq_len=4096)]
    moe = [
        Case(model="qwen3-30b-a3b", fsdp=n, seq_len=4096, recompute=k)
        for n in (8, 64)
        for k in kinds
    ]
    short = [
        Case(fsdp=64, seq_len=1024, recompute="full"),
        Case(model="qwen3-30b-a3b", fsdp=64, seq_len=1024, recompute="full"),
    ]
    return [*fsdp, *sizes, *tensor, *more, *both, *wide, *moe, *short]


def quick_cases() -> list[Case]:
    """A handful that covers every axis."""
    return [
        Case(fsdp=8),
        Case(fsdp=64, recompute="selective"),
        Case(fsdp=8, tp=8, loss_parallel=True, recompute="full"),
        Case(tp=8, loss_parallel=True),
        Case(model="qwen3-30b-a3b", fsdp=64, seq_len=4096),
    ]


def job_of(case: Case) -> Job:
    """The case as meshwright sees it."""
    config = CONFIGS[case.model]
    model = decoder(
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim"),
        vocab_size=config["vocab_size"],
        intermediate_size=config["intermediate_size"],
        experts=config.get("num_experts", 0),
        top_k=config.get("num_experts_per_tok", 0),
        expert_intermediate_size=config.get("moe_intermediate_size"),
        qk_norm="head" if case.model.startswith("qwen3") else "",
    )
    dp = case.fsdp * case.replicate
    gpu = Gpu(name="any", generation="any", memory_bytes=0, memory_bytes_per_s=0, peak_flops={})
    link = Link(name="any", kind="nvlink", domain=8, bytes_per_s=1, latency_s=1)
    cluster = Cluster(gpu=gpu, num_gpus=dp * case.tp, gpus_per_node=8, links=(link,))
    batch = dp * case.micro_batch_size * case.microbatches
    workload = Workload(seq_len=case.seq_len, global_batch_size=batch)
    return Job(model=model, cluster=cluster, workload=workload, plan=plan_of(case), stack="fsdp")


def plan_of(case: Case) -> Plan:
    """The case's plan: fp32 states under FSDP, everything in bf16 where tp is alone."""
    sharded = case.fsdp * case.replicate > 1
    width = 4 if sharded else 2
    kinds = {
        "none": Recompute.NONE,
        "selective": Recompute.SELECTIVE,
        "full": Recompute.FULL,
    }
    return Plan(
        tp=case.tp,
        dp=case.fsdp * case.replicate,
        dp_replicate=case.replicate,
        zero_stage=3 if sharded else 0,
        reshard_after_forward=case.reshard,
        param_bytes=width,
        grad_bytes=width,
        reduce_bytes=4,
        master_weights=False,
        optimizer_state_bytes=width,
        micro_batch_size=case.micro_batch_size,
        sequence_parallel=case.sequence_parallel,
        loss_parallel=case.loss_parallel,
        recompute=int(kinds[case.recompute]),
        recompute_modules=int(RecomputeModule.ALTERNATE_MATMULS),
    )


def predicted(case: Case) -> Measured:
    """meshwright's figures for the case."""
    result = memory(job_of(case))
    terms = {k.removeprefix("memory.stage0."): float(v) for k, v in result.terms.items()}
    return Measured(
        **{name: terms[name] for name in CATEGORIES},
        peak=float(result.peak_bytes),
        phases={k.removeprefix("moment."): v for k, v in terms.items() if k.startswith("moment.")},
    )


def compare(case: Case) -> dict[str, Any]:
    """Measured and predicted bytes of a case, and relative errors."""
    start = time.process_time()
    truth, guess = measure(case), predicted(case)
    errors = {
        name: getattr(guess, name) / getattr(truth, name) - 1 for name in (*CATEGORIES, "peak")
    }
    return {
        "plan": case.name,
        "measured": asdict(truth),
        "predicted": asdict(guess),
        "errors": errors,
        "cpu_s": time.process_time() - start,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Largest absolute error of each category."""
    return {n: max(abs(r["errors"][n]) for r in rows) for n in (*CATEGORIES, "peak")}


def within_limits(worst: dict[str, float]) -> bool:
    """True when every category and the peak are as near as promised."""
    return worst["peak"] <= PEAK_LIMIT and all(worst[n] <= CATEGORY_LIMIT for n in CATEGORIES)


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    errors = "".join(f"{row['errors'][n]:+9.1%}" for n in (*CATEGORIES, "peak"))
    measured = row["measured"]["peak"] / GIB
    return f"{row['plan']:52s}{errors}{measured:9.2f}{row['predicted']['peak'] / GIB:9.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="five plans instead of all")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--only", default="", help="plans whose name contains this")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
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
    worst = summary(rows)
    if options.json:
        print(json.dumps({"rows": rows, "worst": worst, "plans": len(rows)}))
    else:
        print("worst " + ", ".join(f"{n} {v:.1%}" for n, v in worst.items()))
    return 0 if within_limits(worst) else 1


if __name__ == "__main__":
    sys.exit(main())
