"""For each cause a failing and a healthy example: a made trace, or evidence built by hand.

`MADE` plants a fault in a run of the generator (tests/traces/making), whose files are read and
accounted for as any other; `BUILT` is for what a generator of profiler traces does not write.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from built_evidence import (
    STEPS,
    collective,
    evidence,
    job,
    job_of_ranks,
    matmuls,
    nccl,
    pipeline,
    rank,
    snapshot,
    straggler,
)

from making import Spec, write_run
from meshwright.diagnose.account import account
from meshwright.diagnose.across.axes import group_axes, with_axes
from meshwright.diagnose.across.join import across as joined
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.path.replay import what_if
from meshwright.diagnose.trace.read import read_trace

SMALL = {"layers": 2, "steps": 3}


@cache
def _made(spec: Spec) -> Evidence:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [account(read_trace(p)) for p in write_run(spec, Path(folder))]
    groups = [g for r in ranks for g in r.meta.groups]
    axes = group_axes(groups, job=None, world_size=len(ranks))
    ranks = [with_axes(r, axes) for r in ranks]
    found = joined(ranks)
    if found is not None:
        found = replace(found, what_if_us=what_if(ranks, found))
    return Evidence(ranks=tuple(ranks), across=found)


def made(**fields: Any) -> Evidence:
    """The evidence of a made run."""
    return _made(Spec(**{**SMALL, **fields}))


# code -> (fault, the same run without it)
MADE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DAT901": ({"loader_us": 30_000, "loader_workers": 0}, {"loader_workers": 0}),
    "DAT902": ({"loader_us": 30_000}, {}),
    "DAT903": ({"preprocess_us": 30_000, "with_stack": True}, {"with_stack": True}),
    "DAT904": ({"batch_mb": 200, "pageable_copies": True}, {"pageable_copies": True}),
    "DAT905": ({"batch_mb": 800}, {}),
    "DAT906": (
        {"dp": 4, "slow_rank": 0, "slow_rotates": True, "steps": 6},
        {"dp": 4, "steps": 6},
    ),
    "DAT909": ({"dp": 4, "loader_us": 30_000, "loader_rank": 3}, {"dp": 4}),
    "DAT907": ({"batch_mb": 400, "copies": 400}, {"batch_mb": 400, "copies": 1}),
    "DAT908": (
        {"loader_us": 200_000, "loader_every": 6, "steps": 6},
        {"loader_us": 30_000, "steps": 6},
    ),
    "CMP902": ({"matmul_tflops": 150.0}, {}),
    "CMP903": ({"vocab": 50257, "head_tflops": 150.0}, {"vocab": 50304}),
    "CMP906": ({"drift": 1.5, "steps": 6}, {"steps": 6}),
    "COM902": ({"dp": 8, "ranks_per_host": 4, "network_gbps": 10.0}, {"dp": 4}),
    "COM907": (
        {
            "dp": 4,
            "ranks_per_host": 2,
            "overlap": False,
            "buckets_per_layer": 100,
            "hidden": 1024,
            "ffn": 2816,
            "heads": 8,
            "network_gbps": 10.0,
        },
        {"dp": 4},
    ),
    "HST901": ({"items_per_layer": 8, "small_kernels": True}, {}),
    "HST905": ({"compile_us": 100_000, "with_stack": True}, {"with_stack": True}),
    "HST906": (
        {"evaluation_us": 60_000, "logging_us": 10_000, "with_stack": True},
        {"with_stack": True},
    ),
    "MOD901": ({"small_kernels": True}, {}),
    "MOD903": ({"unfused_attention": True}, {}),
    "MOD904": ({"pp": 4, "micro_batches": 4}, {"pp": 2, "micro_batches": 32}),
    "MOD905": ({"pp": 4, "slow_stage": 1, "micro_batches": 8, "layers": 4}, {"dp": 4}),
    "MOD906": ({"pp": 4, "slow_stage": 3, "micro_batches": 8, "layers": 4}, {"dp": 4}),
    "MOD907": (
        {"dp": 4, "ep": 4, "experts": 8, "expert_imbalance": 2.0},
        {"dp": 4, "ep": 4, "experts": 8},
    ),
    "MOD908": ({"recompute": True}, {}),
    "MOD909": ({"fused_optimizer": False, "layers": 4}, {"layers": 4}),
    "CMP901": ({}, {"small_kernels": True}),
    "CMP904": ({"fp32_matmuls": True, "matmul_tflops": 60}, {}),
    "CMP905": ({"dp": 4, "slow_rank": 2}, {"dp": 4}),
    "CMP907": ({"malloc_us": 3_000}, {}),
    "COM901": ({"tp": 8, "ranks_per_host": 4}, {"dp": 4}),
    "COM903": ({"cp": 4, "ranks_per_host": 2}, {"dp": 4}),
    "COM908": ({"dp": 8, "ranks_per_host": 4, "overlap": False, "layers": 4}, {"dp": 4}),
    "COM909": ({"dp": 8, "ranks_per_host": 4}, {"dp": 4}),
    "COM910": ({"dp": 8, "ranks_per_host": 4, "sharded": True, "overlap": False}, {"dp": 4}),
    "COM911": ({"tp": 4, "slow_axis": "tp"}, {"tp": 4}),
    "COM912": ({"dp": 8, "ep": 8, "experts": 8, "ranks_per_host": 4}, {"dp": 4}),
    "COM913": ({"dp": 4, "contention": 1.8, "node_gbps": 90.0, "layers": 4}, {"dp": 4}),
    "HST902": ({"checkpoint_us": 60_000, "with_stack": True}, {"with_stack": True}),
    "HST903": ({"gc_us": 30_000, "with_stack": True}, {"with_stack": True}),
    "HST904": (
        {"profiler_us": 40, "with_stack": True, "small_kernels": True},
        {"small_kernels": True},
    ),
    "HST907": (
        {"dp": 4, "slow_host_rank": 1, "slow_factor": 6, "small_kernels": True},
        {"dp": 4, "small_kernels": True},
    ),
    "HST912": ({"dp": 2, "gc_us": 60_000, "steps": 4}, {"dp": 2, "steps": 4}),
}

LATE, LATENCY = "idle_host_late_launch", "idle_launch_latency"
DEPENDENT, UNKNOWN = "idle_device_dependency", "idle_unknown_launch_not_in_trace"
EVEN = {(p, d): 900_000.0 for p in range(4) for d in range(2)}


def of(parts: dict[str, float] | None = None, **fields: Any) -> Evidence:
    """One rank with these parts of the window."""
    return evidence(rank(parts=parts, **fields))


def with_collectives(*found: Any, comm: float = 0.2, world: int = 8, **fields: Any) -> Evidence:
    return evidence(rank(parts={"exposed_comm": comm}, collectives=found, world=world), **fields)


def metrics(**figures: Any) -> Evidence:
    """A run of which only its own metrics are known."""
    return Evidence(
        metrics={"steps": 200, "step_s_median": 2.0, "data_wait_s_median": 0.5} | figures
    )


def axis(name: str, **fields: Any) -> Evidence:
    """Exposed communication of an axis, from one rank."""
    return with_collectives(collective("allreduce", axis=name), **fields)


def hidden(name: str) -> Evidence:
    return axis(name, comm=0.01)


BUILT: dict[str, tuple[Any, Any]] = {
    "MOD902": (
        lambda: of(classes={"gemm": 0.3, "elementwise": 0.5, "copy_layout": 0.2}),
        lambda: of(),
    ),
    "MOD910": (
        lambda: of(facts={"unfused_norm_us": 20_000}),
        lambda: of(facts={"unfused_norm_us": 0}),
    ),
    "MOD911": (lambda: of(facts={"loss_us": 20_000}), lambda: of(facts={"loss_us": 3_000})),
    "MOD912": (
        lambda: of(gemm=matmuls((8192, 4096, 4096, 600.0), (64, 4096, 4096, 60.0))),
        lambda: of(gemm=matmuls((8192, 4096, 4096, 600.0), (4096, 4096, 4096, 580.0))),
    ),
    "MOD920": (
        lambda: evidence(
            rank(classes={"gemm": 0.4, "elementwise": 0.6}, steps=(30e6,) * STEPS), job=job()
        ),
        lambda: evidence(
            rank(classes={"gemm": 0.9, "elementwise": 0.01}, steps=(30e6,) * STEPS), job=job()
        ),
    ),
    "CMP908": (
        lambda: evidence(memory=(snapshot(retries=3),)),
        lambda: evidence(memory=(snapshot(),)),
    ),
    "CMP909": (
        lambda: evidence(memory=(snapshot(fragmentation=0.4),)),
        lambda: evidence(memory=(snapshot(),)),
    ),
    "CMP910": (
        lambda: evidence(memory=(snapshot(peak=0.97, reserved=0.99),)),
        lambda: evidence(memory=(snapshot(),)),
    ),
    "CMP911": (
        lambda: of({LATE: 0.3}, facts={"optimizer_host_us": 30_000, "optimizer_idle_us": 28_000}),
        lambda: of(facts={"optimizer_host_us": 0, "optimizer_idle_us": 100}),
    ),
    "CMP912": (
        lambda: Evidence(pipeline=pipeline({**EVEN, (1, 0): 1_400_000.0}, idle=50.0)),
        lambda: Evidence(pipeline=pipeline()),
    ),
    "CMP913": (
        lambda: of({DEPENDENT: 0.3}, facts={"graph_wait_us": 29_000}),
        lambda: of({DEPENDENT: 0.3}, facts={"graph_wait_us": 0}),
    ),
    "CMP914": (lambda: of({DEPENDENT: 0.3}), lambda: of({DEPENDENT: 0.02})),
    "CMP915": (
        lambda: of(
            {LATE: 0.1},
            steps=(1e5, 1e5, 1e5, 2.2e5, 1e5, 1.1e5, 1e5, 1e5),
            step_parts=({LATE: 0.0}, {LATE: 0.0}, {LATE: 0.0}, {LATE: 0.5}, *({LATE: 0.0},) * 4),
        ),
        lambda: of({LATE: 0.05}, steps=(1e5,) * 8),
    ),
    "CMP916": (
        lambda: replace(
            job_of_ranks(4, wait_us=20_000, compute_us_by_rank=(1e5, 1e5, 8e4, 8e4)),
            job=job(global_batch=250),
        ),
        lambda: replace(
            job_of_ranks(4, wait_us=20_000, compute_us_by_rank=(1e5, 1e5, 8e4, 8e4)), job=job()
        ),
    ),
    "CMP920": (
        lambda: evidence(
            rank(classes={"gemm": 0.95, "elementwise": 0.05}, steps=(90e6,) * STEPS), job=job()
        ),
        lambda: evidence(
            rank(classes={"gemm": 0.5, "elementwise": 0.05}, steps=(1e6,) * STEPS), job=job()
        ),
    ),
    "CMP921": (
        lambda: evidence(memory=(snapshot(peak=0.99),), job=job(global_batch=64)),
        lambda: evidence(memory=(snapshot(peak=0.1),), job=job(global_batch=64)),
    ),
    "COM904": (lambda: axis("ep"), lambda: hidden("ep")),
    "COM905": (lambda: axis("pp"), lambda: hidden("pp")),
    "COM906": (lambda: axis(""), lambda: hidden("")),
    "COM914": (
        lambda: job_of_ranks(wait_us=20_000, stragglers=(straggler("unknown"),)),
        lambda: job_of_ranks(wait_us=500),
    ),
    "COM916": (
        lambda: of({"exposed_comm": 0.1}, facts={"dispatch_wait_us": 8_000}),
        lambda: of({"exposed_comm": 0.1}, facts={"dispatch_wait_us": 100}),
    ),
    "COM917": (
        lambda: with_collectives(collective("broadcast", count=4 * STEPS)),
        lambda: with_collectives(collective("allreduce"), collective("broadcast", count=1, us=5)),
    ),
    "COM920": (
        lambda: evidence(
            rank(
                parts={"exposed_comm": 0.5},
                steps=(60e6,) * STEPS,
                world=8,
                collectives=(collective("_allgather_base", axis="dp", hidden=0.3),),
            ),
            job=job(),
        ),
        lambda: evidence(
            rank(
                parts={"exposed_comm": 0.001},
                steps=(30e6,) * STEPS,
                world=8,
                collectives=(collective("_allgather_base", axis="dp", hidden=0.99),),
            ),
            job=job(),
        ),
    ),
    "COM921": (
        lambda: evidence(nccl=(nccl(transports={"NET/Socket/0": 8}, network="Socket"),)),
        lambda: evidence(nccl=(nccl(),)),
    ),
    "COM922": (
        lambda: evidence(nccl=(nccl(transports={"NET/IB/0": 8}),)),
        lambda: evidence(nccl=(nccl(),)),
    ),
    "COM923": (
        lambda: evidence(nccl=(nccl(transports={"SHM/direct/direct": 8}),)),
        lambda: evidence(nccl=(nccl(),)),
    ),
    "COM924": (
        lambda: evidence(nccl=(nccl(channels=2),)),
        lambda: evidence(nccl=(nccl(),)),
    ),
    "COM925": (
        lambda: evidence(nccl=(nccl(warnings=("NCCL WARN Call to ibv_reg_mr failed",)),)),
        lambda: evidence(nccl=(nccl(),)),
    ),
    "COM926": (
        lambda: evidence(nccl=(nccl(count=100),)),
        lambda: evidence(nccl=(nccl(),)),
    ),
    "COM927": (
        lambda: evidence(nccl=(nccl(settings={"NCCL_P2P_DISABLE": "1"}),)),
        lambda: evidence(nccl=(nccl(settings={"NCCL_DEBUG": "INFO"}),)),
    ),
    "HST908": (
        lambda: of({LATE: 0.2}, facts={"median_kernel_us": 200.0}),
        lambda: of({LATE: 0.02}, facts={"median_kernel_us": 200.0}),
    ),
    "HST916": (
        lambda: evidence(replace(rank(parts={LATE: 0.3}), computes_on="host")),
        lambda: evidence(replace(rank(parts={LATE: 0.08}), computes_on="host")),
    ),
    "HST909": (lambda: of({UNKNOWN: 0.3}), lambda: of({UNKNOWN: 0.01})),
    "HST910": (
        lambda: evidence(replace(rank(), attribution=None, gpu_span=None)),
        lambda: evidence(),
    ),
    "CMP917": (lambda: of({"exposed_memory": 0.2}), lambda: of({"exposed_memory": 0.01})),
    "CMP918": (lambda: metrics(drift=1.3), lambda: metrics(drift=1.01)),
    "DAT911": (lambda: metrics(data_wait_share=0.3), lambda: metrics(data_wait_share=0.001)),
    "HST913": (
        lambda: metrics(save_share=0.1, save_s_count=4, save_s_median=20.0),
        lambda: metrics(save_share=0.001, save_s_count=4, save_s_median=0.2),
    ),
    "HST914": (lambda: metrics(evaluate_share=0.1), lambda: metrics(evaluate_share=0.001)),
    "HST915": (
        lambda: metrics(restarts=2, between_attempts_s=90.0),
        lambda: metrics(restarts=0),
    ),
    "HST911": (
        lambda: evidence(metrics={"steps": 100, "skipped_steps": 30}),
        lambda: evidence(metrics={"steps": 100, "skipped_steps": 0}),
    ),
}


def failing(code: str) -> Evidence:
    return made(**MADE[code][0]) if code in MADE else BUILT[code][0]()


def healthy(code: str) -> Evidence:
    return made(**MADE[code][1]) if code in MADE else BUILT[code][1]()
