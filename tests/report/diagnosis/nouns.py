"""A diagnosis made by hand, of as many ranks as a test wants: tp 4, dp over the rest, one late."""

from __future__ import annotations

import numpy as np

from meshwright.diagnose.across.noun import Across, AxisTime, LinkRate, Met, Straggler
from meshwright.diagnose.diagnosis import Cause, Diagnosis, Evidence, Lever, Promise, Proof
from meshwright.diagnose.logs.noun import Communicator, MemorySnapshot, NcclLog
from meshwright.diagnose.path.noun import Path, Stretch
from meshwright.diagnose.pipeline.noun import Pipeline, Worker
from meshwright.diagnose.rank import (
    Attribution,
    Bars,
    Collective,
    Instances,
    Kernel,
    Matmuls,
    MatmulShape,
    Rank,
    Step,
    Unions,
)
from meshwright.diagnose.trace.columns import Group, Left, Meta

STEP_US, STEPS = 250_000.0, 4
LATE = 3  # the rank that the others wait for
SCRIPT = "<script>document.title='broken into'</script>"
BREAKOUT = "</script><img src=x onerror=\"document.title='broken into'\">\u202e\x1b[31m&amp;'"
_PARTS = {
    "compute": 0.55,
    "exposed_comm": 0.25,
    "exposed_memory": 0.01,
    "idle_dataloader": 0.02,
    "idle_host_late_launch": 0.12,
    "idle_launch_latency": 0.03,
    "idle_device_dependency": 0.015,
    "idle_back_to_back_under_5us": 0.005,
}


def parts(number: int, window_us: float) -> dict[str, float]:
    """Parts of a window: the late rank computes longer and is not kept waiting."""
    shares = dict(_PARTS)
    if number == LATE:
        shares |= {"compute": 0.75, "exposed_comm": 0.05}
    return {name: share * window_us for name, share in shares.items()}


def attribution(number: int, window_us: float) -> Attribution:
    found = parts(number, window_us)
    return Attribution(
        window="first ProfilerStep start to last ProfilerStep end",
        window_us=window_us,
        parts_us=found,
        parts_pct={name: 100 * us / window_us for name, us in found.items()},
        overlapped_comm_us=0.1 * window_us,
    )


def unions(number: int, window_us: float, name: str = "") -> Unions:
    found = parts(number, window_us)
    idle = sum(us for key, us in found.items() if key.startswith("idle"))
    return Unions(
        name=name,
        window_us=window_us,
        compute_us=found["compute"],
        comm_us=found["exposed_comm"] + 0.1 * window_us,
        memory_us=found["exposed_memory"],
        overlap_comm_compute_us=0.1 * window_us,
        exposed_comm_us=found["exposed_comm"],
        exposed_memory_us=found["exposed_memory"],
        busy_us=window_us - idle,
        idle_us=idle,
        overlap_pct_of_comm=28.6,
        compute_pct=100 * found["compute"] / window_us,
        exposed_comm_pct=100 * found["exposed_comm"] / window_us,
        exposed_memory_pct=100 * found["exposed_memory"] / window_us,
        idle_pct=100 * idle / window_us,
        n_steps=STEPS,
    )


def bars(*, count: int = 160, label: str = "ampere_bf16_gemm", origin_ns: int = 10**18) -> Bars:
    lane = np.arange(count, dtype=np.int32) % 4
    start = origin_ns + np.arange(count, dtype=np.int64) * round(1000 * STEP_US * STEPS / count)
    length = np.array([5_000_000, 2_000_000, 300_000, 900_000], dtype=np.int64)[lane]
    return Bars(
        lanes=("compute", "communication", "memory", "idle: host launched late"),
        labels=(label, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "Memcpy HtoD", "idle"),
        lane=lane,
        label=lane.copy(),
        start_ns=start,
        end_ns=start + length,
    )


def collective(number: int, axis: str, desc: str, exposed_us: float) -> Collective:
    return Collective(
        collective="allreduce",
        pg_name=str(number % 4 + 10),
        pg_desc=desc,
        pg_ranks="[0, 1, 2, 3]",
        group_size=4,
        dtype="BFloat16",
        in_nelems=8_388_608,
        out_nelems=8_388_608,
        count=320,
        sum_us=1.6 * exposed_us,
        min_us=180.0,
        median_us=420.0,
        exposed_us=exposed_us,
        bytes=16_777_216,
        busbw_GBps_at_median=60.0,
        busbw_GBps_at_min=139.8,
        axis=axis,
    )


def rank(number: int, world: int, *, kernel: str = "ampere_bf16_gemm", file: str = "") -> Rank:
    window = STEP_US * STEPS
    start_us = 4_458_676_416_788.066
    steps = tuple(
        Step(
            name=f"ProfilerStep#{n}",
            start_us=start_us + n * STEP_US,
            dur_us=STEP_US,
            cpu_dur_us=STEP_US,
            device_events=900,
            device_lag_us=12.5,
        )
        for n in range(STEPS)
    )
    span = unions(number, window)
    return Rank(
        file=file or f"traces/rank-{number}.json.gz",
        file_bytes=4_000_000,
        json_bytes=50_000_000,
        events=200_000,
        device_events=3600,
        bad_events=0,
        meta=Meta(
            rank=number,
            world_size=world,
            backend="nccl",
            groups=(Group(name="0", description="default_pg", ranks=(0, 1, 2, 3), size=4),),
            base_ns=10**18 - round(1000 * start_us),
        ),
        left=(),
        gpu="NVIDIA H100 80GB HBM3",
        rank=number,
        world_size=world,
        backend="nccl",
        nccl_version="2.21.5",
        computes_on="device",
        device_pids={"0": 3600},
        streams={"0/7": 3300, "0/20": 300},
        gpu_span=span,
        cpu_steps=steps,
        step_time_us_median=STEP_US,
        step_window=span,
        per_step=tuple(unions(number, STEP_US, s.name) for s in steps),
        device_steps=steps,
        device_step_time_us_median=STEP_US,
        kernel_time_sum_us=0.9 * window,
        kernel_class_sum_us={
            "gemm": 0.35 * window,
            "attention": 0.1 * window,
            "elementwise": 0.08 * window,
            "norm": 0.02 * window,
            "comm": 0.35 * window,
        },
        top_kernels=(
            Kernel(name=kernel, kind="gemm", sum_us=3e5, count=640, pct_of_kernel_sum=33.3),
            Kernel(
                name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)",
                kind="comm",
                sum_us=2e5,
                count=320,
                pct_of_kernel_sum=22.2,
            ),
        ),
        idle_cause={"n_gaps": 812, "sum_us": 0.19 * window},
        cpu={"sync_calls": {"count": 8, "union_us": 109.8}},
        collectives=(
            collective(number, "tp", "tensor parallel", 0.2 * window),
            collective(number, "dp", "undefined", 0.05 * window),
        ),
        attribution=attribution(number, window),
        step_attributions=tuple(attribution(number, STEP_US) for _ in range(STEPS)),
        gemm=Matmuls(
            ops=640,
            ops_without_kernel=0,
            kernel_us=3e5,
            tflop=180.0,
            mean_tflops=600.0,
            shapes=(
                MatmulShape(
                    op="aten::mm",
                    batch=1,
                    m=8192,
                    n=8192,
                    k=8192,
                    dtype="c10::BFloat16",
                    count=640,
                    kernel_us=3e5,
                    tflops=600.0,
                ),
            ),
        ),
        lost_shares_pct={"communication": 25.0, "host_launch": 15.0, "data_processing": 2.0},
        principal="communication",
        second="host_launch",
        facts={"kernels": 3600.0},
        instances=Instances(
            signatures=("allreduce",),
            messages=(None,),
            kernels=("ncclDevKernel_AllReduce_Sum_bf16_RING_LL",),
            signature=np.zeros(2, dtype=np.int32),
            start_ns=np.array([0, 10], dtype=np.int64),
            end_ns=np.array([5, 20], dtype=np.int64),
            exposed_ns=np.array([5, 10], dtype=np.int64),
            seq=np.array([1, 2], dtype=np.int64),
            stream=np.zeros(2, dtype=np.int32),
            step=np.zeros(2, dtype=np.int32),
        ),
        bars=bars(label=kernel),
        path=Path(
            window_us=window,
            by_kind_us={"device": 0.7 * window, "host": 0.3 * window},
            what_if_us={"communication": 0.8 * STEP_US, "tp": 0.82 * STEP_US},
            longest=(Stretch(kind="device", name=kernel, start_us=10.0, dur_us=900.0),),
        ),
    )


def across(count: int) -> Across:
    """Of `count` ranks that all wait for one."""
    numbers = tuple(range(count))
    wait = tuple(0.0 if n == LATE else 200_000.0 + n for n in numbers)
    return Across(
        ranks=numbers,
        world_size=count,
        nccl_total_us_by_rank=tuple(300_000.0 for _ in numbers),
        wait_us_by_rank=wait,
        wait_share_by_rank=tuple(w / 300_000 for w in wait),
        times_last=tuple(300 if n == LATE else 0 for n in numbers),
        step_us_by_rank=tuple(STEP_US for _ in numbers),
        compute_us_by_rank=tuple(parts(n, STEP_US)["compute"] for n in numbers),
        transfer_us_sum_of_min=100_000.0,
        straggler_rank=LATE,
        stragglers=(
            Straggler(
                rank=LATE,
                times_last=300,
                waited_for_us=180_000.0,
                share=0.9,
                because="compute",
                over_median=1.36,
            ),
        ),
        collectives=(
            Met(
                index=0,
                kernel="ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                group="10",
                axis="tp",
                ranks=(0, 1, 2, 3),
                start_skew_us=700.0,
                end_skew_us=2.0,
                last_rank=LATE,
                min_dur_us=180.0,
                max_dur_us=880.0,
                wait_us=(700.0, 650.0, 600.0, 0.0),
                bytes=16_777_216,
                busbw_GBps=139.8,
            ),
        ),
        matched=320,
        unmatched=2,
        clock_shift_us=tuple(0.0 for _ in numbers),
        clock_residual_us=1.5,
        links=(
            LinkRate(
                collective="allreduce",
                group="10",
                axis="tp",
                ranks=(0, 1, 2, 3),
                bytes=16_777_216,
                count=320,
                busbw_GBps=139.8,
                spread=1.1,
                spans_nodes=False,
            ),
        ),
        axes=(
            AxisTime(
                axis="tp",
                total_us=80_000.0,
                exposed_us=50_000.0,
                wait_us=45_000.0,
                transfer_us=35_000.0,
                calls=80.0,
                bytes=1.3e9,
            ),
        ),
        group_axes={"10": "tp", "11": "tp"},
        imbalance={"stage": 1.02},
        what_if_us={"stragglers": 0.8 * STEP_US, "tp": 0.82 * STEP_US},
        step_variation=0.01,
        straggler_rotates=False,
    )


def causes(text: str = "") -> tuple[Cause, ...]:
    return (
        Cause(
            code="CMP903",
            title=f"one rank computes slower than its peers{text}",
            kind="compute resources",
            lost_us=45_000.0,
            share=0.18,
            message=f"rank 3 computes the same kernels 1.36 times as long as the median{text}",
            evidence=(
                Proof(
                    text=f"last to arrive in 300 of 320 collectives{text}",
                    events=("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", f"a{text}"),
                    start_us=1200.0,
                    dur_us=700.0,
                    ranks=(LATE,),
                ),
            ),
            lever=Lever(
                text="take its node out, check clocks, power and ECC",
                command="meshwright diagnose traces/ --json",
                gain_s=0.045,
                basis="what-if on the critical path",
            ),
            ranks=(LATE,),
            source="arXiv 2505.05713",
        ),
        Cause(
            code="HST901",
            title="the host launches late",
            kind="host",
            lost_us=30_000.0,
            share=0.12,
            message="the device waits for its launches",
            evidence=(Proof(text="median kernel 14 us"),),
            lever=Lever(
                text="compile, or CUDA graphs", changes={"micro_batch_size": 2, "recompute": "none"}
            ),
            confidence="medium",
            guards=("fewer than two steps were traced",),
        ),
    )


def pipeline(stages: int = 4, batches: int = 8) -> Pipeline:
    chart = tuple(
        (f"pp{p} dp0", kind, m, 1000.0 * (m + p) + (20_000 if kind == "backward" else 0), 900.0)
        for p in range(stages)
        for kind in ("forward", "backward")
        for m in range(batches)
    )
    workers = tuple(
        Worker(pp=p, dp=0, compute_us=14_000.0 + 900 * p, over_median=1 + 0.06 * p, idle_pct=30.0)
        for p in range(stages)
    )
    return Pipeline(
        source="operations",
        files=("timeline.json",),
        meta={},
        p=stages,
        m=batches,
        v=1,
        dp=1,
        steps=5,
        step_span_us_median=40_000.0,
        ideal_bubble_pct=27.3,
        mean_idle_pct_of_step=33.1,
        compute_us_median_by_stage={str(p): 14_000.0 + 900 * p for p in range(stages)},
        stage_max_over_mean=1.1,
        by_worker=workers,
        slowest_worker=workers[-1],
        duration_cv_within_stage={"forward": 0.02},
        compute_share_of_step_mean=0.669,
        op_time_sum_us={"forward": 1e6},
        slowdown=1.12,
        chart=chart,
        principal="pipeline bubble",
    )


def snapshot(text: str = "") -> MemorySnapshot:
    return MemorySnapshot(
        file=f"snap{text}.json",
        device=0,
        peak_bytes=60 << 30,
        peak_at_us=1e6,
        reserved_bytes=70 << 30,
        by_category={"weights": 20 << 30, "activations": 40 << 30},
        by_site=((f"model.py:12 forward{text}", 8 << 30),),
        fragmentation=0.143,
        retries=2,
    )


def nccl_log(text: str = "") -> NcclLog:
    return NcclLog(
        file="nccl.log",
        version="2.21.5+cuda12.4",
        hosts=("node0", "node1"),
        ranks=(0, 1),
        communicators=(Communicator(ident="0xabc", rank=0, nranks=8, cuda_device=0),),
        network="Socket",
        interfaces=("eth0",),
        warnings=(f"NET/IB : No device found.{text}",),
        settings={"NCCL_IB_DISABLE": "1"},
    )


def diagnosis(count: int = 4, *, text: str = "", everything: bool = True) -> Diagnosis:
    """Of `count` ranks; `text` stands in every name that comes from a file."""
    kernel = f"ampere_bf16_gemm{text}"
    evidence = Evidence(
        ranks=tuple(
            rank(n, count, kernel=kernel, file=f"traces/rank-{n}{text}.json.gz")
            for n in range(count)
        ),
        across=across(count) if count > 1 else None,
        pipeline=pipeline() if everything else None,
        metrics={"steps": 40, "step_s_median": 0.25} if everything else None,
        memory=(snapshot(text),) if everything else (),
        nccl=(nccl_log(text),) if everything else (),
        promises=(
            Promise(term="time.communication.tp", predicted_s=0.03, measured_s=0.08, verdict="no"),
            Promise(term="time.optimizer", predicted_s=0.004, measured_s=None),
        ),
    )
    return Diagnosis(
        summary=(
            f"A step takes 250 ms (median of 4 on {count} ranks).",
            "45.0% of it is lost, most of it to waiting for rank 3.",
            "Take its node out: worth about 45.0 ms.",
        ),
        step_us=STEP_US,
        lost_us=0.44 * STEP_US,
        principal="straggler (rank 3)",
        second="communication",
        evidence=evidence,
        causes=causes(text),
        guards=(f"the profiler recorded stacks{text}",),
        left=(
            Left(what=f"traces/torn{text}.json", count=1, time_us=0.0, reason="no trace events"),
            Left(what="kernels without a launch", count=12, time_us=900.0, reason="not traced"),
        ),
    )
