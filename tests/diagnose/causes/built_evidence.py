"""Evidence built by hand, healthy unless something is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshwright import api
from meshwright.diagnose.across.noun import Across, AxisTime, LinkRate, Met, Straggler
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.logs.noun import Communicator, MemorySnapshot, NcclLog
from meshwright.diagnose.pipeline.noun import Pipeline, Worker
from meshwright.diagnose.rank import (
    Attribution,
    Collective,
    Kernel,
    Matmuls,
    MatmulShape,
    Rank,
    Step,
    Unions,
)
from meshwright.diagnose.trace.columns import Meta
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan

STEPS = 5
STEP_US = 100_000.0
MEMORY = 79 * 2**30


def attribution(parts: dict[str, float], window_us: float) -> Attribution:
    """Parts as shares of the window; compute has the rest."""
    rest = {"compute": 1 - sum(parts.values()), **parts}
    return Attribution(
        window="made up",
        window_us=window_us,
        parts_us={n: s * window_us for n, s in rest.items()},
        parts_pct={n: 100 * s for n, s in rest.items()},
        overlapped_comm_us=0.0,
    )


def unions(window_us: float, steps: int) -> Unions:
    rest = dict.fromkeys(
        ("comm_us", "memory_us", "overlap_comm_compute_us", "exposed_comm_us", "idle_us"), 0.0
    )
    shares = {"exposed_comm_pct": 0.0, "exposed_memory_pct": 0.0, "idle_pct": 0.0}
    return Unions(
        window_us=window_us,
        compute_us=window_us,
        exposed_memory_us=0.0,
        busy_us=window_us,
        overlap_pct_of_comm=None,
        compute_pct=100.0,
        n_steps=steps,
        **rest,
        **shares,
    )


def rank(
    number: int = 0,
    *,
    world: int = 1,
    parts: dict[str, float] | None = None,
    facts: dict[str, float] | None = None,
    steps: tuple[float, ...] = (STEP_US,) * STEPS,
    step_parts: tuple[dict[str, float], ...] = (),
    classes: dict[str, float] | None = None,
    meta: Meta | None = None,
    **fields: Any,
) -> Rank:
    """A rank of an H100; `parts` and `classes` are shares of the window, `facts` of one step."""
    window = sum(steps)
    counts = ("calls", "kernels", "launches", "slowdown", "drift", "median_kernel_us")
    scaled = {
        n: v if n.endswith(counts) and n not in COUNTED else v * len(steps)
        for n, v in (facts or {}).items()
    }
    each = step_parts or ((parts or {}),) * len(steps)
    return Rank(
        file=f"rank{number}.json",
        file_bytes=1,
        json_bytes=1,
        events=1,
        device_events=5_000,
        bad_events=0,
        meta=meta or Meta(rank=number, world_size=world),
        left=(),
        gpu="NVIDIA H100 80GB HBM3",
        rank=number,
        world_size=world,
        backend="nccl",
        nccl_version=None,
        computes_on="device",
        gpu_span=unions(window, len(steps)),
        cpu_steps=tuple(
            Step(name=f"ProfilerStep#{n}", start_us=0.0, dur_us=d) for n, d in enumerate(steps)
        ),
        device_steps=tuple(
            Step(name=f"ProfilerStep#{n}", start_us=n * d, dur_us=d) for n, d in enumerate(steps)
        ),
        device_step_time_us_median=sorted(steps)[len(steps) // 2],
        step_window=unions(window, len(steps)),
        kernel_time_sum_us=window,
        kernel_class_sum_us={
            n: s * window for n, s in (classes or {"gemm": 0.8, "elementwise": 0.2}).items()
        },
        top_kernels=(
            Kernel(name="sm90_gemm", kind="gemm", sum_us=1.0, count=1, pct_of_kernel_sum=50.0),
        ),
        attribution=attribution(parts or {}, window),
        step_attributions=tuple(attribution(p, d) for p, d in zip(each, steps, strict=True)),
        facts=scaled,
        **fields,
    )


COUNTED = (
    "h2d_calls",
    "d2h_calls",
    "sync_calls",
    "kernels",
    "optimizer_kernels",
    "malloc_calls",
    "free_calls",
    "graph_launches",
)


def evidence(*ranks: Rank, **fields: Any) -> Evidence:
    return Evidence(ranks=ranks or (rank(),), **fields)


def across(n: int = 4, *, wait_us: float = 0.0, **fields: Any) -> Across:
    """Ranks that meet in collectives; `wait_us` is what one waits in a step, exposed."""
    axes = (
        AxisTime(
            axis="dp",
            total_us=wait_us + 500,
            exposed_us=wait_us + 500,
            wait_us=wait_us,
            transfer_us=500.0,
            calls=4,
            bytes=1e8,
        ),
    )
    base = Across(
        ranks=tuple(range(n)),
        world_size=n,
        nccl_total_us_by_rank=(1e4,) * n,
        wait_us_by_rank=(wait_us * STEPS,) * n,
        wait_share_by_rank=(0.5,) * n,
        times_last=(5,) * n,
        step_us_by_rank=(STEP_US,) * n,
        compute_us_by_rank=(80_000.0,) * n,
        transfer_us_sum_of_min=500.0,
        straggler_rank=None,
        stragglers=(),
        collectives=(
            Met(
                index=0,
                kernel="ncclDevKernel_AllReduce",
                group="1",
                axis="dp",
                ranks=tuple(range(n)),
                start_skew_us=wait_us,
                end_skew_us=1.0,
                last_rank=n - 1,
                min_dur_us=500.0,
                max_dur_us=wait_us + 500,
                wait_us=(wait_us,) * (n - 1) + (0.0,),
            ),
        ),
        matched=20,
        unmatched=0,
        axes=axes,
        straggler_rotates=False,
    )
    return replace(base, **fields)


def job_of_ranks(n: int = 4, *, wait_us: float = 0.0, comm: float | None = None, **fields: Any):
    """Evidence of n ranks that wait for each other."""
    share = wait_us / STEP_US + 0.01 if comm is None else comm
    ranks = tuple(rank(i, world=n, parts={"exposed_comm": share}) for i in range(n))
    return Evidence(ranks=ranks, across=across(n, wait_us=wait_us, **fields))


def straggler(because: str, *, number: int = 3, share: float = 1.0, over: float = 1.4) -> Straggler:
    return Straggler(
        rank=number,
        times_last=18,
        waited_for_us=1e5,
        share=share,
        because=because,
        over_median=over,
    )


def collective(
    word: str,
    *,
    axis: str = "",
    count: int = STEPS,
    us: float = 1000.0,
    size: int | None = 100_000_000,
    hidden: float = 0.0,
) -> Collective:
    """`us` is the mean length of one; `hidden` the share of its time beside compute."""
    return Collective(
        collective=word,
        pg_name="1",
        pg_desc="",
        pg_ranks="",
        group_size=8,
        dtype="BFloat16",
        in_nelems=1,
        out_nelems=1,
        count=count,
        sum_us=us * count,
        min_us=us,
        median_us=us,
        exposed_us=us * count * (1 - hidden),
        bytes=size,
        busbw_GBps_at_median=None,
        busbw_GBps_at_min=None,
        axis=axis,
    )


def link(
    axis: str = "dp",
    *,
    ranks: tuple[int, ...] = (0, 1, 2, 3),
    gbps: float = 300.0,
    spans: bool | None = False,
    **fields: Any,
) -> LinkRate:
    return LinkRate(
        collective=fields.pop("collective", "allreduce"),
        group="1",
        axis=axis,
        ranks=ranks,
        bytes=100_000_000,
        count=20,
        busbw_GBps=gbps,
        spread=1.1,
        spans_nodes=spans,
        **fields,
    )


def matmuls(*shapes: tuple[int, int, int, float], dtype: str = "c10::BFloat16") -> Matmuls:
    """Products m, n, k, tflops, each a fifth of the window of `rank`."""
    made = []
    for m, n, k, tflops in shapes:
        one_us = 2 * m * n * k / tflops / 1e6
        count = max(1, round(0.2 * STEP_US * STEPS / one_us))
        made.append(
            MatmulShape(
                op="aten::mm",
                batch=1,
                m=m,
                n=n,
                k=k,
                dtype=dtype,
                count=count,
                kernel_us=one_us * count,
                tflops=tflops,
            )
        )
    return Matmuls(
        ops=1,
        ops_without_kernel=0,
        kernel_us=sum(s.kernel_us for s in made),
        tflop=1.0,
        mean_tflops=500.0,
        shapes=tuple(made),
    )


def pipeline(
    compute_us: dict[tuple[int, int], float] | None = None,
    *,
    m: int = 64,
    idle: float = 6.0,
    **fields: Any,
) -> Pipeline:
    """A pipeline's operations; `compute_us` by (stage, data-parallel rank), of steps of 1 s."""
    compute_us = compute_us or {(p, d): 900_000.0 for p in range(4) for d in range(2)}
    usual = sorted(compute_us.values())[len(compute_us) // 2]
    workers = tuple(
        Worker(pp=p, dp=d, compute_us=us, over_median=us / usual, idle_pct=idle)
        for (p, d), us in compute_us.items()
    )
    by_stage = {
        str(p): sum(w.compute_us for w in workers if w.pp == p) / sum(w.pp == p for w in workers)
        for p in sorted({w.pp for w in workers})
    }
    p = len(by_stage)
    mean = sum(by_stage.values()) / p
    base = Pipeline(
        source="operations",
        files=("timeline.json",),
        meta={},
        p=p,
        m=m,
        v=1,
        dp=2,
        steps=10,
        step_span_us_median=1e6,
        ideal_bubble_pct=100 * (p - 1) / (m + p - 1),
        mean_idle_pct_of_step=idle,
        compute_us_median_by_stage=by_stage,
        stage_max_over_mean=max(by_stage.values()) / mean,
        by_worker=workers,
        slowest_worker=max(workers, key=lambda w: w.compute_us),
        duration_cv_within_stage={"forward-compute@pp0": 0.02},
        compute_share_of_step_mean=0.9,
        op_time_sum_us={"forward-compute": 1e6},
    )
    return replace(base, **fields)


def nccl(
    *, transports: dict[str, int] | None = None, channels: int = 16, count: int = 2, **fields: Any
) -> NcclLog:
    made = tuple(
        Communicator(
            ident=hex(i),
            rank=0,
            nranks=8,
            cuda_device=0,
            channels=channels,
            transports=transports or {"P2P/CUMEM": 16, "NET/IB/0/GDRDMA": 16},
        )
        for i in range(count)
    )
    base = {"network": "IB", "interfaces": ("mlx5_0",), "warnings": (), "settings": {}}
    return NcclLog(
        file="nccl.log",
        version="2.22.3",
        hosts=("a", "b"),
        ranks=(0,),
        communicators=made,
        **{**base, **fields},
    )


def snapshot(*, peak: float = 0.6, reserved: float = 0.65, **fields: Any) -> MemorySnapshot:
    """Shares of the device."""
    base = {"fragmentation": 0.05, "retries": 0}
    return MemorySnapshot(
        file="snapshot.json",
        device=0,
        peak_bytes=int(peak * MEMORY),
        peak_at_us=1.0,
        reserved_bytes=int(reserved * MEMORY),
        by_category={"activations": 10 * 2**30},
        by_site=(("model.py:12 forward", 2**30),),
        **{**base, **fields},
    )


def job(global_batch: int = 256, **plan: Any) -> Job:
    """Llama-3-8B on eight H100s."""
    values = {"dp": 8, "micro_batch_size": 1, "zero_stage": 3, **plan}
    return Job(
        model=api.load_model("llama-3-8b"),
        cluster=api.cluster("H100:8", nodes=1),
        workload=api.workload(seq_len=4096, global_batch=global_batch),
        plan=Plan(**values),
    )
