"""Rules that weigh predicted memory: what fits, what does not, and what is given up for nothing.

They belong to task assignment (6.1), resource scheduling (6.2) and load balancing (6.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.plan import Recompute, RecomputeModule
from meshwright.rules.environment import variable
from meshwright.rules.predicted import (
    EVERY_FIELD,
    FULL_SHARE,
    SAFE_HOST_SHARE,
    SAFE_SHARE,
    figure,
    gib,
    of_device,
    outside_bytes,
    overflows,
    peak_bytes,
    state_bytes,
    surely_overflows,
    whole_gradient_bytes,
)
from meshwright.rules.rule import rule
from meshwright.rules.shortage import remedies, shortage

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

COMFORTABLE_SHARE = 0.9
ROUTING_SHARE = 0.8  # leaves room for an unlucky routing step
HOST_SHARE = 0.9
_KORTHIKANTI = "Korthikanti et al. 2022 (arXiv 2205.05198)"


def _with_recompute(job: Job, recompute: Recompute) -> Job:
    """The job with every layer under another kind of recompute."""
    value = np.int64(int(recompute))
    return job.with_plan(job.plan.replace(recompute=value, recompute_layers=np.int64(0)))


@rule(
    "CMP120",
    "Full recompute although selective fits",
    severity=Severity.WARNING,
    section="6.1",
    source=f"{_KORTHIKANTI} sections 5 and 6",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def full_recompute_is_needed(job: Job) -> Mask:
    """Full recompute adds a third to the step, selective a few percent.

    Fails: plan(model="llama-3-8b", tp=4, recompute=Recompute.FULL)
    Passes: plan(model="llama-3-8b", tp=1, micro_batch_size=4, recompute=Recompute.FULL)
    """
    full = job.plan.recompute == int(Recompute.FULL)
    if not np.any(full):
        return full
    return full & ~overflows(_with_recompute(job, _lighter(job)), COMFORTABLE_SHARE)


def _lighter(job: Job) -> Recompute:
    """The next lighter recompute: programs of torch switch it on and off for whole layers."""
    return Recompute.NONE if job.stack in ("deepspeed", "fsdp") else Recompute.SELECTIVE


@full_recompute_is_needed.message
def _(job: Job) -> str:
    lighter = _lighter(job)
    name = "no" if lighter is Recompute.NONE else "selective"
    peak = peak_bytes(_with_recompute(job, lighter))
    return f"full recompute, although with {name} recompute the peak is {of_device(job, peak)}"


@full_recompute_is_needed.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"recompute": (_lighter(job),)}


@rule(
    "CMP121",
    "Plan does not fit",
    severity=Severity.ERROR,
    section="6.1",
    source=f"{_KORTHIKANTI} equations 1 to 4; the formulas of the memory model",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
    implied_by=("MOD217",),
)
def plan_fits(job: Job) -> Mask:
    """States and activations together exceed the device, so that the first step runs out of memory.

    Recompute, context parallelism and smaller micro-batches reduce the activations.

    Fails: plan(model="llama-3-8b", tp=1, micro_batch_size=4)
    Passes: plan(model="llama-3-8b", tp=1, micro_batch_size=4, recompute=Recompute.FULL)
    """
    states_fit = state_bytes(job) <= FULL_SHARE * job.cluster.gpu.memory_bytes
    return surely_overflows(job) & states_fit


@plan_fits.message
def _(job: Job) -> str:
    return f"{shortage(job)}; even the lower bound of the estimate exceeds the GPU"


@plan_fits.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return remedies(job, lambda other: ~np.asarray(surely_overflows(other)))


@rule(
    "CMP209",
    "Host memory too small for offload",
    severity=Severity.ERROR,
    section="6.2",
    source="ZeRO-Offload (arXiv 2101.06840)",
    reads=EVERY_FIELD,
    confidence="heuristic",
    predictive=True,
)
def host_holds_offload(job: Job) -> Mask:
    """What all GPUs of a node offload, pinned buffers included, must fit its host memory.

    Fails: plan(model="llama-3-70b", zero_stage=3, offload_optimizer=1.0, host_memory_bytes=1e11)
    Passes: plan(model="llama-3-70b", zero_stage=3, offload_optimizer=1.0, host_memory_bytes=2e12)
    """
    plan = job.plan
    states = (plan.offload_optimizer > 0) | plan.offload_params
    offloads = states | (plan.offload_activations > 0)
    return offloads & (figure(job, "host_bytes") > HOST_SHARE * job.cluster.host.memory_bytes)


@host_holds_offload.message
def _(job: Job) -> str:
    needed = figure(job, "host_bytes")
    return f"{gib(needed)} a node on hosts of {gib(job.cluster.host.memory_bytes)}"


@rule(
    "CMP246",
    "Gradients kept whole while micro-batches accumulate",
    severity=Severity.WARNING,
    section="6.2",
    source="PyTorch torch/distributed/fsdp/fully_sharded_data_parallel.py no_sync (2.13); "
    "accelerate src/accelerate/accelerator.py no_sync (1.15)",
    reads=EVERY_FIELD,
    confidence="read",
    predictive=True,
    implied_by=("CMP121", "MOD217"),
)
def whole_gradients_fit(job: Job) -> Mask:
    """Gradients that are not reduced before the last micro-batch are not sharded before it either.

    Trainers on top of accelerate defer the reduction of FSDP's gradients (`no_sync`), which saves
    communication and costs a whole copy. Reduce every micro-batch (`sync_each_batch`), or
    accumulate less.

    Fails: plan(model="llama-3-8b", zero_stage=3, tp=1, reduce_every_microbatch=False,
        recompute=Recompute.FULL, gpu_memory_bytes=2.2e10)
    Passes: plan(model="llama-3-8b", zero_stage=3, tp=1, reduce_every_microbatch=True,
        recompute=Recompute.FULL, gpu_memory_bytes=2.2e10)
    """
    whole = whole_gradient_bytes(job)
    room = job.cluster.gpu.memory_bytes
    return (whole > 0) & ~overflows(job) & (peak_bytes(job) + outside_bytes(job) + whole > room)


@whole_gradients_fit.message
def _(job: Job) -> str:
    whole = whole_gradient_bytes(job)
    needed = peak_bytes(job) + outside_bytes(job) + whole
    return (
        f"runs out of memory in the second micro-batch: {gib(whole)} of unsharded gradients make "
        f"{of_device(job, needed)}"
    )


@rule(
    "CMP245",
    "Host memory nearly full",
    severity=Severity.WARNING,
    section="6.2",
    source="PyTorch aten/src/ATen/core/CachingHostAllocator.h: pinned buffers are rounded up to "
    "powers of two (2.8)",
    reads=EVERY_FIELD,
    confidence="heuristic",
    predictive=True,
    implied_by=("CMP209",),
)
def host_has_headroom(job: Job) -> Mask:
    """Pinned buffers are rounded up to powers of two, so that offload may take half as much again.

    Loading, data workers and the page cache take their part of the host too.

    Fails: plan(model="llama-3-8b", zero_stage=3, offload_optimizer=1.0, host_memory_bytes=9e10)
    Passes: plan(model="llama-3-8b", zero_stage=3, offload_optimizer=1.0, host_memory_bytes=1e12)
    """
    plan, room = job.plan, job.cluster.host.memory_bytes
    offloads = (plan.offload_optimizer > 0) | plan.offload_params | (plan.offload_activations > 0)
    needed = figure(job, "host_bytes")
    return offloads & (needed > SAFE_HOST_SHARE * room) & (needed <= HOST_SHARE * room)


@host_has_headroom.message
def _(job: Job) -> str:
    needed, room = figure(job, "host_bytes"), job.cluster.host.memory_bytes
    return (
        f"offload is not safe: {gib(needed)} a node on hosts of {gib(room)}, before pinned buffers "
        "are rounded up; the host may run out of memory"
    )


@rule(
    "CMP212",
    "No memory headroom",
    severity=Severity.WARNING,
    section="6.2",
    source="Megatron-Bridge docs/performance-guide.md (067f987d) memory section",
    reads=EVERY_FIELD,
    confidence="doc",
    predictive=True,
    implied_by=("CMP121", "MOD217"),
)
def memory_has_headroom(job: Job) -> Mask:
    """The plan may run out of memory: the upper bound of the estimate does not fit.

    Where the estimate itself fits, fragmentation decides; expandable segments of torch's allocator
    keep it small. Where not even that fits, the model of memory would have to be wrong by its own
    stated error for the plan to run.

    Fails: plan(model="llama-3-8b", tp=1, gpu_memory_bytes=78e9)
    Passes: plan(model="llama-3-8b", tp=1, gpu_memory_bytes=85e9)
    """
    expandable = "expandable_segments:True" in (variable(job, "PYTORCH_CUDA_ALLOC_CONF") or "")
    tight = figure(job, "required_bytes") > SAFE_SHARE * job.cluster.gpu.memory_bytes
    beyond = overflows(job)
    states_fit = state_bytes(job) <= FULL_SHARE * job.cluster.gpu.memory_bytes
    return (beyond | ((not expandable) & tight)) & ~surely_overflows(job) & states_fit


@memory_has_headroom.message
def _(job: Job) -> str:
    how = "does not fit by the estimate" if bool(overflows(job)) else "is not safe"
    return f"{how}: {shortage(job)}; upper bound {gib(figure(job, 'required_bytes'))}"


@memory_has_headroom.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    room = SAFE_SHARE * job.cluster.gpu.memory_bytes
    return remedies(job, lambda other: figure(other, "required_bytes") <= room)


@rule(
    "CMP303",
    "First stage runs out of memory",
    severity=Severity.ERROR,
    section="6.3",
    source=f"{_KORTHIKANTI} section 4.2.3",
    reads=EVERY_FIELD,
    confidence="paper",
    predictive=True,
)
def first_stage_fits(job: Job) -> Mask:
    """Stage 0 keeps pp micro-batches in flight, later stages fewer, so it runs out first.

    With virtual stages it is 1 + (pp-1)/(pp*vpp) times as much. Fewer layers on the first stages
    or a schedule that balances memory (V shapes) help where recompute costs too much.

    Fails: plan(model="llama-3-70b", tp=8, pp=8, micro_batch_size=2, seq_len=16384)
    Passes: plan(model="llama-3-70b", tp=8, pp=8, micro_batch_size=1, seq_len=4096)
    """
    first = figure(job, "stage") == 0
    return (job.plan.pp > 1) & first & surely_overflows(job)


@first_stage_fits.message
def _(job: Job) -> str:
    peak, pp = peak_bytes(job) + outside_bytes(job), job.plan.pp
    return f"stage 0 of pp = {pp} peaks at {of_device(job, peak)}"


@rule(
    "CMP319",
    "Dropless experts near the memory limit",
    severity=Severity.WARNING,
    section="6.3",
    source="Megatron-LM megatron/core/transformer/moe/README.md best practices (d98e8a64) memory",
    reads=EVERY_FIELD,
    confidence="doc",
    predictive=True,
    said_by=("CMP121", "CMP212", "CMP303", "MOD217"),
)
def routing_peaks_fit(job: Job) -> Mask:
    """When no token is dropped, an unlucky step multiplies the expert activations of one rank.

    Recomputing the experts' activation keeps the peak low; so does a capacity factor.

    Fails: plan(model="qwen3-30b-a3b", ep=8, gpu_memory_bytes=76e9)
    Passes: plan(model="qwen3-30b-a3b", ep=8, tp=2, gpu_memory_bytes=141e9)
    """
    plan, factor = job.plan, job.workload.runtime.expert_capacity_factor
    dropless = job.model.is_moe and (factor is None or factor < 0)
    named = np.bitwise_and(plan.recompute_modules, int(RecomputeModule.MOE_ACTIVATION)) != 0
    spared = (plan.recompute == int(Recompute.SELECTIVE)) & named
    spared = spared | (plan.recompute == int(Recompute.FULL))
    return dropless & np.logical_not(spared) & overflows(job, ROUTING_SHARE)


@routing_peaks_fit.message
def _(job: Job) -> str:
    return f"peak of {of_device(job, peak_bytes(job))} under perfectly balanced routing"


@routing_peaks_fit.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    modules = int(job.plan.recompute_modules) | int(RecomputeModule.MOE_ACTIVATION)
    if job.plan.recompute == int(Recompute.SELECTIVE):
        return {"recompute_modules": (RecomputeModule(modules),)}
    return {"recompute": (Recompute.FULL,)}
