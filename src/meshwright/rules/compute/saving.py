"""Rules about the time that saving a checkpoint takes from training (section 6.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_duration
from meshwright.rules.estimate import step_time_s, total_parameters
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

MANY_RANKS = 64
LONG_STALL_S = 30.0
STALL_SHARE = 0.02  # of the time between two checkpoints
ASSUMED_STALL_SHARE = 0.2  # where nobody says how fast a node writes
USUAL_INTERVAL_S = 4 * 3600.0
USUAL_WRITE_BYTES_PER_S = 2e9  # what one node's client reaches on a shared file system


@rule(
    "CMP255",
    "Training stands still while a checkpoint is saved",
    severity=Severity.WARNING,
    section="6.2",
    source="ZeRO (arXiv 1910.02054) section 3.1 for the size; PyTorch torch/distributed/"
    "checkpoint/state_dict_saver.py async_save (2.13)",
    reads=("precision", "param_bytes", "master_weights", "optimizer_state_bytes", "lora_rank"),
    confidence="arithmetic",
    needs=("model",),
    points=(
        *("checkpoint_interval_steps", "checkpoint_interval_s", "checkpoint_async", "ckpt_dir"),
        "checkpoint_bytes",
    ),
)
def saving_is_asynchronous(job: Job) -> Mask:
    """A synchronous checkpoint stops all ranks until it is written.

    Save asynchronously (with a collective timeout longer than the save), in parallel from all
    nodes, less often, or to local disks first.

    Fails: plan(model="llama-3-70b", checkpoint_async=False, checkpoint_interval_steps=50,
        checkpoint_write_bytes_per_s_per_node=1e9)
    Passes: plan(model="llama-3-70b", checkpoint_async=True, checkpoint_interval_steps=50,
        checkpoint_write_bytes_per_s_per_node=1e9)
    """
    if job.workload.loading.checkpoint_async is not False:
        return False
    share = STALL_SHARE if _is_rate_known(job) else ASSUMED_STALL_SHARE
    adapters = (job.plan.lora_rank > 0) & (job.workload.loading.checkpoint_bytes is None)
    long = _save_s(job) > np.maximum(LONG_STALL_S, share * _between_s(job))
    return long & np.logical_not(adapters)


def _is_rate_known(job: Job) -> bool:
    """Whether somebody says how fast a node writes."""
    loading = job.workload.loading
    return bool(
        loading.checkpoint_write_bytes_per_s_per_node or job.cluster.host.storage_bytes_per_s
    )


def _between_s(job: Job) -> Any:
    """Seconds between two checkpoints, some hours where the interval is not stated."""
    loading = job.workload.loading
    if loading.checkpoint_interval_s is not None:
        return loading.checkpoint_interval_s
    if loading.checkpoint_interval_steps is None:
        return USUAL_INTERVAL_S
    return loading.checkpoint_interval_steps * step_time_s(job)


def _save_s(job: Job) -> Any:
    return _saved_bytes(job) / (_write_bytes_per_s(job) * job.cluster.num_nodes)


def _saved_bytes(job: Job) -> Any:
    """Bytes of a checkpoint: stated, or weights, master weights and moments."""
    stated = job.workload.loading.checkpoint_bytes
    if stated is not None:
        return stated
    plan = job.plan
    each = plan.param_bytes + np.where(plan.master_weights, 4, 0) + 2 * plan.optimizer_state_bytes
    return total_parameters(job.model) * each


def _write_bytes_per_s(job: Job) -> float:
    stated = job.workload.loading.checkpoint_write_bytes_per_s_per_node
    return stated or job.cluster.host.storage_bytes_per_s or USUAL_WRITE_BYTES_PER_S


@saving_is_asynchronous.message
def _(job: Job) -> str:
    loading = job.workload.loading
    assumed = "" if _is_rate_known(job) else " (assumed)"
    often = ""
    if loading.checkpoint_interval_steps is not None:
        often = f", every {loading.checkpoint_interval_steps} steps"
    return (
        f"synchronous checkpoint of {format_bytes(float(_saved_bytes(job)))} at "
        f"{_write_bytes_per_s(job) / 1e9:.3g} GB/s a node{assumed} takes at least "
        f"{format_duration(float(_save_s(job)))}{often}"
    )


@rule(
    "CMP256",
    "Whole state dict gathered over many ranks",
    severity=Severity.WARNING,
    section="6.2",
    source="PyTorch torch/distributed/fsdp/_state_dict_utils.py and _optim_utils.py (2.13)",
    reads=(),
    confidence="read",
)
def state_dict_is_sharded(job: Job) -> Mask:
    """A full state dict passes through one rank's CPU; resuming moves it to every rank again.

    The time grows with the ranks, so small tests look fine. Save and load sharded state dicts.

    Fails: plan(nodes=352, checkpoint_gathered=True)
    Passes: plan(nodes=352, checkpoint_gathered=False)
    Passes: plan(nodes=1, checkpoint_gathered=True)
    """
    return bool(job.workload.loading.checkpoint_gathered) and job.cluster.num_gpus >= MANY_RANKS


@state_dict_is_sharded.message
def _(job: Job) -> str:
    return (
        f"full state dict of all {job.cluster.num_gpus} ranks gathered over the CPU of one rank "
        f"at every save, and spread again at every resume"
    )
