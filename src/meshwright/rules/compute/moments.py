"""Rules about memory at moments other than a step in the middle of the run: load and checkpoint.

Belongs to resource scheduling (6.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.costed import by_row, moments_of
from meshwright.rules.predicted import EVERY_FIELD, gib
from meshwright.rules.rule import rule
from meshwright.rules.shortage import largest_terms

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

_ENGINE = "DeepSpeed deepspeed/runtime/engine.py _configure_distributed_model (0.17)"
_ACCELERATE = "accelerate src/accelerate/accelerator.py prepare_model (1.14)"


def _needs(job: Job, name: str) -> float:
    """Bytes that a device must have at a moment, with what lies outside the allocator."""
    found = moments_of(job)
    return found.named(name).fullest_bytes + found.outside_bytes


def _step_fits(job: Job) -> bool:
    """Whether a step in the middle of the run fits, so that only the moment is at fault."""
    found = moments_of(job)
    return found.steady_bytes + found.outside_bytes <= job.cluster.gpu.memory_bytes


def _load_overflows(job: Job) -> bool:
    return _step_fits(job) and _needs(job, "load") > job.cluster.gpu.memory_bytes


def _load_words(job: Job) -> str:
    load = moments_of(job).named("load")
    return (
        f"{gib(_needs(job, 'load'))} on stage {load.stage} while the model is built, on a device "
        f"of {gib(job.cluster.gpu.memory_bytes)}: {largest_terms(load)}"
    )


@rule(
    "CMP240",
    "Model is built whole where only its shards fit",
    severity=Severity.ERROR,
    section="6.2",
    source=_ENGINE,
    reads=EVERY_FIELD,
    confidence="read",
    predictive=True,
)
def build_fits_device(job: Job) -> Mask:
    """Built or moved whole before it is sharded, the model runs out of memory before any step.

    Build it sharded: `zero.Init`, the meta device with `to_empty` after sharding.

    Fails: plan(model="llama-3-70b", stack="deepspeed", zero_stage=3, recompute=Recompute.FULL,
        model_build="device")
    Passes: plan(model="llama-3-70b", stack="deepspeed", zero_stage=3, recompute=Recompute.FULL,
        model_build="sharded")
    """
    if job.workload.loading.model_build is None:
        return False
    return by_row(job, _load_overflows)


build_fits_device.message(_load_words)


@rule(
    "CMP241",
    "Model may be built whole where only its shards fit",
    severity=Severity.WARNING,
    section="6.2",
    source=_ENGINE,
    reads=EVERY_FIELD,
    confidence="read",
    predictive=True,
)
def build_may_fit_device(job: Job) -> Mask:
    """Unless the program builds the model sharded, it runs out of memory before any step.

    How it builds is not stated in the configuration. DeepSpeed moves a model that was not built
    under `zero.Init` to the GPU whole.

    Fails: plan(model="llama-3-70b", stack="deepspeed", zero_stage=3, recompute=Recompute.FULL)
    Passes: plan(model="llama-3-8b", stack="deepspeed", zero_stage=3, recompute=Recompute.FULL)
    """
    if job.workload.loading.model_build is not None:
        return False
    return by_row(job, _load_overflows)


build_may_fit_device.message(_load_words)


# Host


def _host_of(job: Job, name: str) -> float:
    return moments_of(job).named(name).host_bytes


def _load_overflows_host(job: Job) -> bool:
    return _host_of(job, "load") > job.cluster.host.memory_bytes


def _host_words(job: Job) -> str:
    load = moments_of(job).named("load")
    copies = load.host_terms.get("copies of the model", 0.0)
    ranks = 1 if job.workload.loading.model_build == "first_rank" else job.cluster.gpus_per_node
    return (
        f"{ranks} ranks a node load {gib(copies / ranks)} each: {gib(load.host_bytes)} "
        f"of host memory with the processes' own, on hosts of "
        f"{gib(job.cluster.host.memory_bytes)}"
    )


@rule(
    "CMP242",
    "Every rank loads the whole model into host memory",
    severity=Severity.ERROR,
    section="6.2",
    source=_ACCELERATE,
    reads=EVERY_FIELD,
    confidence="read",
    predictive=True,
)
def load_fits_host(job: Job) -> Mask:
    """Each rank of a node reads its own copy, so that the host runs out of memory while loading.

    Let one rank load (low-memory loading), or build under `zero.Init`.

    Fails: plan(model="llama-3-70b", stack="fsdp", zero_stage=3, model_build="host",
        host_memory_bytes=1e12)
    Passes: plan(model="llama-3-70b", stack="fsdp", zero_stage=3, model_build="first_rank",
        host_memory_bytes=1e12)
    """
    if job.workload.loading.model_build is None:
        return False
    return by_row(job, _load_overflows_host)


load_fits_host.message(_host_words)


@rule(
    "CMP243",
    "Ranks may all load the whole model into host memory",
    severity=Severity.WARNING,
    section="6.2",
    source=_ENGINE,
    reads=EVERY_FIELD,
    confidence="read",
    predictive=True,
)
def load_may_fit_host(job: Job) -> Mask:
    """Unless one rank loads or the model is built sharded, the host runs out of memory.

    How the program loads is not stated in the configuration.

    Fails: plan(model="llama-3-70b", stack="deepspeed", zero_stage=3, host_memory_bytes=1e12)
    Passes: plan(model="llama-3-8b", stack="deepspeed", zero_stage=3, host_memory_bytes=1e12)
    """
    if job.workload.loading.model_build is not None:
        return False
    return by_row(job, _load_overflows_host)


load_may_fit_host.message(_host_words)


# Checkpoint


def _save_overflows(job: Job) -> bool:
    """A checkpoint that does not fit the host or the device, where a step fits both."""
    on_device = _step_fits(job) and _needs(job, "checkpoint") > job.cluster.gpu.memory_bytes
    room = job.cluster.host.memory_bytes
    return on_device or _host_of(job, "forward") <= room < _host_of(job, "checkpoint")


@rule(
    "CMP244",
    "Gathered checkpoint exceeds the first rank's memory",
    severity=Severity.ERROR,
    section="6.2",
    source="PyTorch torch/distributed/fsdp/_state_dict_utils.py (2.13)",
    reads=EVERY_FIELD,
    confidence="read",
    predictive=True,
)
def checkpoint_fits(job: Job) -> Mask:
    """A full state dict is gathered on rank 0, which then runs out of memory hours into the run.

    Save in shards; merge them afterwards where one file is needed.

    Fails: plan(model="llama-3-70b", stack="fsdp", zero_stage=3, checkpoint_gathered=True,
        host_memory_bytes=2.5e11)
    Passes: plan(model="llama-3-70b", stack="fsdp", zero_stage=3, checkpoint_gathered=False,
        host_memory_bytes=2.5e11)
    """
    if not job.workload.loading.checkpoint_gathered:
        return False
    return by_row(job, _save_overflows)


@checkpoint_fits.message
def _(job: Job) -> str:
    saved = moments_of(job).named("checkpoint")
    parts = ", ".join(f"{name} {gib(value)}" for name, value in saved.host_terms.items())
    return (
        f"{gib(saved.host_bytes)} on the host of rank 0 ({parts}), which has "
        f"{gib(job.cluster.host.memory_bytes)}; {gib(_needs(job, 'checkpoint'))} on its device of "
        f"{gib(job.cluster.gpu.memory_bytes)}"
    )
