"""Resource scheduling (6.2): offload, precision of the GPU, host cores and the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.plan import PEAK_NAME, Precision
from meshwright.plan.words import word
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "6.2"
JITTER_GPUS = 256
_BRIDGE_GUIDE = "Megatron-Bridge docs/performance-guide.md (067f987d)"


@rule(
    "CMP207",
    "Parameter offload below stage 3",
    severity=Severity.ERROR,
    section=SECTION,
    source="DeepSpeed deepspeed/runtime/zero/config.py DeepSpeedZeroConfig (0.19.8)",
    reads=("offload_params", "zero_stage"),
    confidence="run",
    tolerated_by="torchtitan>=0.3",
)
def offloaded_parameters_are_sharded(job: Job) -> Mask:
    """Parameters are fetched layer by layer only where they are sharded (ZeRO-3, FSDP).

    Below that the setting is accepted and ignored: they stay on the GPU, and the plan does not
    fit as computed.

    Fails: plan(offload_params=True, zero_stage=1)
    Passes: plan(offload_params=True, zero_stage=3)
    """
    return job.plan.offload_params & (job.plan.zero_stage < 3)


@offloaded_parameters_are_sharded.message
def _(job: Job) -> str:
    return f"offload_params with zero_stage = {job.plan.zero_stage}"


offloaded_parameters_are_sharded.fix(always(zero_stage=(3,), offload_params=(False,)))


def native(job: Job) -> tuple[Precision, ...]:
    """The precisions in which the GPU multiplies."""
    return tuple(p for p in Precision if PEAK_NAME[p] in job.cluster.gpu.peak_flops)


@rule(
    "CMP210",
    "Precision not supported by the GPU",
    severity=Severity.ERROR,
    section=SECTION,
    source="TransformerEngine pytorch/quantization.py (d0067d0d); torchtitan "
    "components/quantization (0.3.0); vendors' data sheets",
    reads=("precision",),
    confidence="read",
    needs=("gpu",),
)
def gpu_has_precision(job: Job) -> Mask:
    """The GPU must multiply in this precision: bf16 from Ampere, FP8 from Ada, Hopper and MI300.

    MXFP8 and NVFP4 come with Blackwell and MI350.

    Fails: plan(precision=Precision.NVFP4)
    Passes: plan(precision=Precision.FP8)
    """
    supported = [int(p) for p in native(job)]
    return ~np.isin(job.plan.precision, supported)


@gpu_has_precision.message
def _(job: Job) -> str:
    gpu, wanted = job.cluster.gpu, word("precision", job.plan.precision)
    return f"{gpu.name} ({gpu.generation}) does not multiply in {wanted}"


@gpu_has_precision.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"precision": tuple(p for p in native(job) if p != Precision.FP32)}


@rule(
    "CMP215",
    "Unaligned garbage collection at scale",
    severity=Severity.WARNING,
    section=SECTION,
    source=f"{_BRIDGE_GUIDE} host overhead; Megatron-LM megatron/core/transformer/moe/README.md "
    "best practices (d98e8a64)",
    confidence="doc",
)
def garbage_is_collected_together(job: Job) -> Mask:
    """Python pauses ranks at different steps, and each pause holds up all the others.

    Fails: plan(nodes=32, manual_gc=False)
    Passes: plan(nodes=32, manual_gc=True)
    """
    return job.cluster.num_gpus >= JITTER_GPUS and job.workload.runtime.manual_gc is False


@garbage_is_collected_together.message
def _(job: Job) -> str:
    return f"{job.cluster.num_gpus} ranks collect garbage each when it likes"


garbage_is_collected_together.fix(always(manual_gc=(True,)))


@rule(
    "CMP217",
    "Processes not bound to the near socket",
    severity=Severity.INFO,
    section=SECTION,
    source=f"{_BRIDGE_GUIDE} host overhead",
    confidence="doc",
)
def processes_are_bound(job: Job) -> Mask:
    """A process on the far socket launches its kernels later than the others.

    Fails: plan(numa_bind=False)
    Passes: plan(numa_bind=True)
    """
    return job.cluster.gpus_per_node >= 4 and job.workload.runtime.numa_bind is False


@processes_are_bound.message
def _(job: Job) -> str:
    return f"{job.cluster.gpus_per_node} processes a node are not bound to sockets"


processes_are_bound.fix(always(numa_bind=(True,)))


@rule(
    "CMP218",
    "More loader processes than cores",
    severity=Severity.WARNING,
    section=SECTION,
    source="sizing: loader workers, the training process and the communication proxy of each GPU",
    confidence="heuristic",
)
def cores_suffice(job: Job) -> Mask:
    """Loader workers, training processes and communication proxies compete for the cores.

    Judged where workers and cores are stated.

    Fails: plan(num_workers=16, host_cores=96)
    Passes: plan(num_workers=4, host_cores=96)
    """
    workers, cores = job.workload.loading.num_workers, job.cluster.host.cores
    return workers is not None and 0 < cores < job.cluster.gpus_per_node * (workers + 2)


@cores_suffice.message
def _(job: Job) -> str:
    gpus, workers = job.cluster.gpus_per_node, job.workload.loading.num_workers or 0
    needed = gpus * (workers + 2)
    cores = job.cluster.host.cores
    return f"{gpus} GPUs x ({workers} workers + 2) = {needed} processes on {cores} cores"


@cores_suffice.fix
def _(job: Job) -> dict[str, tuple[int, ...]]:
    return {"num_workers": (max(job.cluster.host.cores // job.cluster.gpus_per_node - 2, 0),)}
