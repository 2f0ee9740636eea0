"""Rules of model parallelism that weigh predicted memory: too little of it, and too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.plan import Schedule
from meshwright.rules.predicted import (
    EVERY_FIELD,
    FULL_SHARE,
    of_device,
    overflows,
    peak_bytes,
    state_bytes,
)
from meshwright.rules.rule import rule
from meshwright.rules.shortage import remedies, shortage

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SPARE_SHARE = 0.8


def _data_parallel_only(job: Job) -> Job:
    """The same plan without tensor and pipeline parallelism, one sequence a micro-batch."""
    one, zero = np.int64(1), np.int64(0)
    plan = job.plan.replace(
        tp=one,
        pp=one,
        vpp=one,
        etp=one,
        micro_batch_size=one,
        schedule=np.int64(int(Schedule.ONE_F_ONE_B)),
        dp=np.maximum(job.cluster.num_gpus // np.maximum(job.plan.cp, 1), 1),
        first_stage_layers=zero,
        last_stage_layers=zero,
        embedding_in_split=np.False_,
        loss_in_split=np.False_,
        layout=None,
    )
    return job.with_plan(plan)


@rule(
    "MOD162",
    "Model parallelism that memory does not require",
    severity=Severity.WARNING,
    section="5.1",
    source="Megatron-Bridge docs/performance-guide.md (067f987d); Megatron-LM megatron/core/"
    "transformer/moe/README.md best practices (d98e8a64) guideline 1",
    reads=EVERY_FIELD,
    confidence="doc",
    predictive=True,
)
def model_parallelism_is_needed(job: Job) -> Mask:
    """Data parallelism, sharded where it must be, communicates least and has the largest products.

    Tensor and pipeline parallelism are for models that do not fit, or batches that do not stretch.

    Fails: plan(model="llama-3-8b", tp=4, zero_stage=3)
    Passes: plan(model="llama-3-70b", tp=8, pp=4)
    """
    plan = job.plan
    replicas = job.cluster.num_gpus // np.maximum(plan.cp, 1)
    stretches = job.workload.global_batch_size >= replicas
    split = ((plan.tp > 1) | (plan.pp > 1)) & stretches
    if not np.any(split):
        return split
    return split & ~overflows(_data_parallel_only(job), SPARE_SHARE)


@model_parallelism_is_needed.message
def _(job: Job) -> str:
    peak = peak_bytes(_data_parallel_only(job))
    return f"tp = {job.plan.tp}, pp = {job.plan.pp}; without either {of_device(job, peak)}"


@rule(
    "MOD217",
    "Model state larger than the device",
    severity=Severity.ERROR,
    section="5.2",
    source="ZeRO (arXiv 1910.02054) section 3; Megatron-LM "
    "docs/user-guide/features/dist_optimizer.md",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def states_fit(job: Job) -> Mask:
    """Weights, gradients and optimizer states alone exceed the device, before any activation.

    Adam in mixed precision needs 16 to 18 bytes a parameter before sharding.

    Fails: plan(model="llama-3-70b", tp=1, zero_stage=1)
    Passes: plan(model="llama-3-70b", tp=1, zero_stage=3)
    Passes: plan(model="llama-3-70b", tp=8, pp=4)
    """
    return state_bytes(job) > FULL_SHARE * job.cluster.gpu.memory_bytes


@states_fit.message
def _(job: Job) -> str:
    states = of_device(job, state_bytes(job))
    plan = job.plan
    return (
        f"states take {states} with tp = {plan.tp}, pp = {plan.pp}, zero_stage = "
        f"{plan.zero_stage}; {shortage(job)}"
    )


@states_fit.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    limit = FULL_SHARE * job.cluster.gpu.memory_bytes
    return remedies(job, lambda other: state_bytes(other) <= limit)
