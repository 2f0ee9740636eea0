"""DAT3xx, second part: how often to save, how fast, and what a restart needs.

Section 4.3 of the guidelines. Nothing here fires unless the settings are stated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_duration
from meshwright.rules.estimate import step_time_s, total_parameters
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

# Llama 3 (arXiv 2407.21783) section 3.3.4: 419 interruptions in 54 days on 16,384 GPUs
GPU_MTBF_S = 54 * 86400 * 16384 / 419
FAR_FROM_OPTIMUM = 2.0  # the loss is flat: a factor of 2 costs a quarter more overhead
WRITING_SHARE = 0.5


# How often, how fast


def interval_s(job: Job) -> Any:
    """Seconds between checkpoints; NaN when not stated."""
    loading = job.workload.loading
    if loading.checkpoint_interval_s is not None:
        return loading.checkpoint_interval_s
    if loading.checkpoint_interval_steps is not None:
        return loading.checkpoint_interval_steps * step_time_s(job)
    return np.nan


def _checkpoint_bytes(job: Job) -> Any:
    """Bytes of a checkpoint, as stated or resident weights, master weights and two moments."""
    stated = job.workload.loading.checkpoint_bytes
    if stated is not None:
        return stated
    p = job.plan
    each = p.param_bytes + np.where(p.master_weights, 4, 0) + 2 * p.optimizer_state_bytes
    return total_parameters(job.model) * each


def write_s(job: Job) -> Any:
    """Seconds to write a checkpoint from all nodes together; NaN when the rate is not stated."""
    rate = job.workload.loading.checkpoint_write_bytes_per_s_per_node
    return np.nan if rate is None else _checkpoint_bytes(job) / (rate * job.cluster.num_nodes)


def stall_s(job: Job) -> Any:
    """Seconds that training stands still for a checkpoint; NaN when unknown."""
    loading = job.workload.loading
    if loading.checkpoint_stall_s is not None:
        return loading.checkpoint_stall_s
    return np.nan if loading.checkpoint_async is not False else write_s(job)


def mtbf_s(job: Job) -> float:
    """Mean seconds between failures of the job; NaN when unknown."""
    runtime = job.workload.runtime
    if runtime.job_mtbf_s is not None:
        return runtime.job_mtbf_s
    return np.nan if runtime.gpu_mtbf_s is None else runtime.gpu_mtbf_s / job.cluster.num_gpus


def young_s(stall_s: Any, mtbf_s: Any) -> Any:
    """The interval that loses least time to saves and failures, sqrt(2 * stall * MTBF)."""
    return np.sqrt(2.0 * stall_s * mtbf_s)


def optimum_s(job: Job) -> Any:
    """Young's interval of a job."""
    return young_s(stall_s(job), mtbf_s(job))


_STATE = ("precision", "param_bytes", "master_weights", "optimizer_state_bytes")


@rule(
    "DAT324",
    "Checkpoint interval far from the optimum",
    severity=Severity.WARNING,
    section="4.3",
    source="Young 1974; Daly 2006; Saxena et al. 2024 (arXiv 2410.18124)",
    reads=_STATE,
    confidence="paper",
)
def interval_is_near_optimum(job: Job) -> Mask:
    """Saving too rarely loses work with each failure, too often stalls training.

    The overhead is least near sqrt(2 * stall * MTBF), where the stall is only what blocks training
    (asynchronous saves shrink it) and MTBF that of the whole job.

    Fails: plan(checkpoint_interval_s=36000, checkpoint_stall_s=30, job_mtbf_s=100000)
    Fails: plan(checkpoint_interval_s=600, checkpoint_stall_s=30, gpu_mtbf_s=6.4e6)
    Passes: plan(checkpoint_interval_s=2400, checkpoint_stall_s=30, job_mtbf_s=100000)
    """
    ratio = interval_s(job) / optimum_s(job)
    return (ratio > FAR_FROM_OPTIMUM) | (ratio < 1 / FAR_FROM_OPTIMUM)


@interval_is_near_optimum.message
def _(job: Job) -> str:
    return (
        f"a checkpoint every {format_duration(float(interval_s(job)))}; with a stall of "
        f"{format_duration(float(stall_s(job)))} and a failure every "
        f"{format_duration(float(mtbf_s(job)))} the optimum is "
        f"{format_duration(float(optimum_s(job)))}"
    )


@interval_is_near_optimum.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"checkpoint_interval_s": (round(float(optimum_s(job))),)}


@rule(
    "DAT325",
    "Writing a checkpoint takes most of the interval",
    severity=Severity.WARNING,
    section="4.3",
    source="ZeRO (arXiv 1910.02054) section 3.1 for the size of the state",
    reads=_STATE,
    confidence="arithmetic",
)
def checkpoint_is_written_in_time(job: Job) -> Mask:
    """Saves pile up when one is hardly written before the next begins.

    A full state is about 14 bytes a parameter (2 of weights, 12 of master weights and moments),
    weights alone 2. Write from more nodes, to local disks first, or less often.

    Fails: plan(checkpoint_interval_s=60, checkpoint_write_bytes_per_s_per_node=2e8)
    Passes: plan(checkpoint_interval_s=600, checkpoint_write_bytes_per_s_per_node=2e8)
    """
    return write_s(job) > WRITING_SHARE * interval_s(job)


@checkpoint_is_written_in_time.message
def _(job: Job) -> str:
    return (
        f"{format_bytes(float(_checkpoint_bytes(job)))} take "
        f"{format_duration(float(write_s(job)))} to write, every "
        f"{format_duration(float(interval_s(job)))}"
    )


@checkpoint_is_written_in_time.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"checkpoint_interval_s": (int(np.ceil(write_s(job) / WRITING_SHARE)),)}


@rule(
    "DAT326",
    "Failures of the job rarer than those of its GPUs",
    severity=Severity.INFO,
    section="4.3",
    source="Llama 3 (arXiv 2407.21783) section 3.3.4: 419 interruptions in 54 days on 16384 GPUs",
    confidence="paper",
)
def failures_grow_with_gpus(job: Job) -> Mask:
    """One failure anywhere stops a synchronous job, so failures grow with the GPUs.

    The time between them is that of one GPU divided by their number, about three hours on 16384.

    Fails: plan(nodes=1024, job_mtbf_s=86400, gpu_mtbf_s=1.8e8)
    Passes: plan(nodes=1024, job_mtbf_s=21600, gpu_mtbf_s=1.8e8)
    """
    runtime = job.workload.runtime
    if runtime.job_mtbf_s is None or runtime.gpu_mtbf_s is None:
        return False
    return runtime.job_mtbf_s * job.cluster.num_gpus > 1.3 * runtime.gpu_mtbf_s


@failures_grow_with_gpus.message
def _(job: Job) -> str:
    runtime = job.workload.runtime
    expected = (runtime.gpu_mtbf_s or 0.0) / job.cluster.num_gpus
    return (
        f"a failure every {format_duration(runtime.job_mtbf_s or 0.0)} is stated, but "
        f"{job.cluster.num_gpus} GPUs fail every {format_duration(expected)}"
    )


@failures_grow_with_gpus.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"job_mtbf_s": ((job.workload.runtime.gpu_mtbf_s or 0.0) / job.cluster.num_gpus,)}


@rule(
    "DAT323",
    "Only one checkpoint kept",
    severity=Severity.WARNING,
    section="4.3",
    source="torchtitan torchtitan/components/checkpointer/base.py (0.3.0)",
    confidence="run",
)
def a_whole_checkpoint_remains(job: Job) -> Mask:
    """A failure while the only checkpoint is overwritten leaves none.

    Fails: plan(checkpoints_kept=1)
    Passes: plan(checkpoints_kept=2)
    """
    return job.workload.loading.checkpoints_kept == 1


@a_whole_checkpoint_remains.message
def _(job: Job) -> str:
    return f"checkpoints_kept = {job.workload.loading.checkpoints_kept}: none while it is written"


a_whole_checkpoint_remains.fix(always(checkpoints_kept=(2, 0)))


# What a restart needs


@rule(
    "DAT314",
    "Loader positions saved for another data-parallel degree",
    severity=Severity.ERROR,
    section="4.3",
    source="torchtitan torchtitan/components/dataloader.py ParallelAwareDataloader (0.3.0)",
    reads=("dp",),
    confidence="read",
)
def loader_state_fits(job: Job) -> Mask:
    """Positions saved one a replica say nothing about another number of replicas.

    An order that follows from the number of samples consumed has no such limit.

    Fails: plan(dp=64, saved_dp=32, loader_state_saved=True)
    Passes: plan(dp=64, saved_dp=64, loader_state_saved=True)
    Passes: plan(dp=64, saved_dp=32, loader_state_saved=True, order_recomputable=True)
    """
    loading = job.workload.loading
    if loading.saved_dp is None or not loading.loader_state_saved or loading.order_recomputable:
        return False
    return job.plan.dp != loading.saved_dp


@loader_state_fits.message
def _(job: Job) -> str:
    return f"loader positions of {job.workload.loading.saved_dp} replicas, now dp {job.plan.dp}"


@loader_state_fits.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"dp": (job.workload.loading.saved_dp,)}


@rule(
    "DAT315",
    "Checkpoint of another tp or pp in a format that keeps them",
    severity=Severity.ERROR,
    section="4.3",
    source="Megatron-LM megatron/training/checkpointing.py check_checkpoint_args (d98e8a64)",
    reads=("tp", "pp"),
    confidence="read",
)
def checkpoint_fits_mesh(job: Job) -> Mask:
    """A file per rank loads only into the same cut of the model.

    Formats that describe whole tensors (torch distributed checkpoint and its kin) reshard.

    Fails: plan(tp=4, saved_tp=8, saved_pp=1, checkpoint_reshardable=False)
    Passes: plan(tp=8, saved_tp=8, saved_pp=1, checkpoint_reshardable=False)
    Passes: plan(tp=4, saved_tp=8, saved_pp=1, checkpoint_reshardable=True)
    """
    loading = job.workload.loading
    if loading.checkpoint_reshardable is not False:
        return False
    p = job.plan
    other_tp = False if loading.saved_tp is None else p.tp != loading.saved_tp
    other_pp = False if loading.saved_pp is None else p.pp != loading.saved_pp
    return np.logical_or(other_tp, other_pp)


@checkpoint_fits_mesh.message
def _(job: Job) -> str:
    loading, p = job.workload.loading, job.plan
    return f"saved with tp {loading.saved_tp} pp {loading.saved_pp}, now tp {p.tp} pp {p.pp}"


@checkpoint_fits_mesh.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    loading, p = job.workload.loading, job.plan
    saved = {"tp": loading.saved_tp, "pp": loading.saved_pp}
    other = {a: d for a, d in saved.items() if d is not None and d != getattr(p, a)}
    one = {a: (d,) for a, d in other.items() if len(other) == 1}
    return {**one, "checkpoint_reshardable": (True,)}


@rule(
    "DAT332",
    "Exact resume without random state and data position",
    severity=Severity.WARNING,
    section="4.3",
    source="Megatron-LM docs/user-guide/deterministic-training.md (d98e8a64)",
    confidence="doc",
)
def resume_is_exact(job: Job) -> Mask:
    """A restart repeats or skips data, and drops out differently, unless both are saved.

    Fails: plan(exact_resume=True, rng_saved=False, loader_state_saved=True)
    Fails: plan(exact_resume=True, rng_saved=True, loader_state_saved=False)
    Passes: plan(exact_resume=True, rng_saved=True, loader_state_saved=True)
    Passes: plan(exact_resume=True, rng_saved=True, order_recomputable=True)
    """
    loading = job.workload.loading
    position_lost = loading.loader_state_saved is False and not loading.order_recomputable
    return bool(loading.exact_resume) and (loading.rng_saved is False or position_lost)


@resume_is_exact.message
def _(job: Job) -> str:
    loading = job.workload.loading
    return (
        f"exact_resume with rng_saved = {loading.rng_saved}, loader_state_saved = "
        f"{loading.loader_state_saved}, order_recomputable = {loading.order_recomputable}"
    )


resume_is_exact.fix(always(rng_saved=(True,), loader_state_saved=(True,)))
