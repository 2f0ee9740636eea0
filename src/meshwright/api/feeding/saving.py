"""What checkpoints cost: bytes, how often, and the share of time that saves and failures take."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.rules.compute.saving import USUAL_WRITE_BYTES_PER_S
from meshwright.rules.costed import checkpoint_bytes
from meshwright.rules.data.checkpoints import (
    GPU_MTBF_S,
    interval_s,
    mtbf_s,
    optimum_s,
    stall_s,
)

if TYPE_CHECKING:
    from meshwright.plan.job import Job

LEAST_STALL_S = 1.0  # a save is never free: barriers, metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """Checkpoints of a run. `optimum_s` is Young's interval, `interval_s` the stated one or that.

    `lost_share` is the share of time that saves take and that failures undo, to first order
    (Daly 2006, equation 13): stall/interval + interval/(2 MTBF).
    """

    checkpoint_bytes: float
    write_bytes_per_s_per_node: float
    stall_s: float
    mtbf_s: float
    optimum_s: float
    interval_s: float
    is_stated: bool  # the interval
    lost_share: float
    mean_bytes_per_s_per_node: float  # over the whole run
    day_bytes: float


def saves_of(job: Job, *, step_s: float) -> tuple[Saves, tuple[str, ...]]:
    """Checkpoints of the job, and what was assumed for them."""
    known, assumed = _completed(job, step_s=step_s)
    loading = known.workload.loading
    size = loading.checkpoint_bytes or 0.0
    rate = loading.checkpoint_write_bytes_per_s_per_node or 0.0
    stall, between, optimum = (
        float(stall_s(known)),
        float(interval_s(known)),
        float(optimum_s(known)),
    )
    is_stated = not math.isnan(between)
    if not is_stated:
        between = max(optimum, stall)
    failures = mtbf_s(known)
    return Saves(
        checkpoint_bytes=size,
        write_bytes_per_s_per_node=rate,
        stall_s=stall,
        mtbf_s=failures,
        optimum_s=optimum,
        interval_s=between,
        is_stated=is_stated,
        lost_share=stall / between + between / (2 * failures),
        mean_bytes_per_s_per_node=size / between / job.cluster.num_nodes,
        day_bytes=size * 86400 / between,
    ), assumed


def _completed(job: Job, *, step_s: float) -> tuple[Job, tuple[str, ...]]:
    """The job with everything stated that checkpoints depend on."""
    loading, runtime = job.workload.loading, job.workload.runtime
    assumed: list[str] = []
    rate = loading.checkpoint_write_bytes_per_s_per_node or job.cluster.host.storage_bytes_per_s
    if not rate:
        rate = USUAL_WRITE_BYTES_PER_S
        assumed.append(f"{rate / 1e9:g} GB/s written by a node")
    size = loading.checkpoint_bytes or checkpoint_bytes(job)
    stall = loading.checkpoint_stall_s
    if stall is None:
        stall = max(_stall_s(job, size=size, rate=rate), LEAST_STALL_S)
        until = "copied to the host" if loading.checkpoint_async else "written"
        assumed.append(f"training stands still until a checkpoint is {until}")
    if runtime.job_mtbf_s is None and runtime.gpu_mtbf_s is None:
        runtime = replace(runtime, gpu_mtbf_s=GPU_MTBF_S)
        assumed.append(f"a GPU fails every {GPU_MTBF_S / 86400 / 365:.2g} years (arXiv 2407.21783)")
    loading = replace(
        loading,
        checkpoint_bytes=float(size),
        checkpoint_write_bytes_per_s_per_node=rate,
        checkpoint_stall_s=stall,
    )
    runtime = replace(runtime, step_time_s=step_s)
    workload = replace(job.workload, loading=loading, runtime=runtime)
    return replace(job, workload=workload), tuple(assumed)


def _stall_s(job: Job, *, size: float, rate: float) -> float:
    """Seconds until training goes on: the copy to host memory, or the whole write."""
    if job.workload.loading.checkpoint_async:
        return size / job.cluster.num_gpus / job.cluster.host.bytes_per_s_per_gpu
    return size / (rate * job.cluster.num_nodes)
