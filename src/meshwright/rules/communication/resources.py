"""COM3xx: buckets, multiprocessors, buffers, timeouts.

Section 7.3 of the guidelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_bytes, format_count, format_duration
from meshwright.plan.job import expert_data_parallel
from meshwright.rules.environment import integer, network_kind
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

MIN_BUCKET_ELEMENTS = 40_000_000
BUCKET_ELEMENTS_PER_RANK = 1_000_000
MAX_SM_SHARE = 0.25
MAX_BUFFER_SHARE = 0.03
DEFAULT_CHANNELS = 16
DEFAULT_BUFFER_BYTES = 4 * 2**20
LARGE_FABRIC_NODES = 1000
SAFE_IB_TIMEOUT = 20
COHERENT_HOST_BYTES_PER_S = 200e9  # NVLink-C2C and its kin; PCIe 6 x16 ends at 128 GB/s
_ENV = "NCCL docs/userguide/source/env.rst (2.30.7)"


@rule(
    "COM301",
    "Gradient buckets too small for the group",
    severity=Severity.WARNING,
    section="7.3",
    source="Megatron-LM megatron/core/distributed/distributed_data_parallel.py (0.19.2); PyTorch "
    "DDP (arXiv 2006.15704) section 4",
    reads=("dp",),
    confidence="read",
)
def buckets_outweigh_latency(job: Job) -> Mask:
    """A ring cuts a bucket into one chunk a rank; short chunks cost latency, not bandwidth.

    Forty million elements, or one million a rank where that is more, keep it bandwidth-bound. The
    25 MB of torch's DDP are made for few ranks.

    Fails: plan(dp=64, bucket_elements=6250000)
    Passes: plan(dp=64, bucket_elements=64000000)
    """
    elements = job.workload.runtime.bucket_elements
    return False if elements is None else elements < _bucket_elements(job)


def _bucket_elements(job: Job) -> Any:
    """Elements that a bucket should hold."""
    return np.maximum(MIN_BUCKET_ELEMENTS, BUCKET_ELEMENTS_PER_RANK * job.plan.dp)


@buckets_outweigh_latency.message
def _(job: Job) -> str:
    elements = job.workload.runtime.bucket_elements or 0
    return (
        f"buckets of {format_count(elements)} elements over dp {job.plan.dp}, under "
        f"{format_count(float(_bucket_elements(job)))}"
    )


@buckets_outweigh_latency.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"bucket_elements": (int(_bucket_elements(job)),)}


@rule(
    "COM305",
    "Collectives may take over a quarter of the multiprocessors",
    severity=Severity.WARNING,
    section="7.3",
    source=f"{_ENV}, NCCL_MAX_CTAS",
    confidence="doc",
)
def collectives_leave_multiprocessors(job: Job) -> Mask:
    """Each channel occupies a multiprocessor that the product beside it would use.

    Fails: plan(environment=(("NCCL_MAX_CTAS", "64"),))
    Passes: plan(environment=(("NCCL_MAX_CTAS", "16"),))
    """
    blocks, count = integer(job, "NCCL_MAX_CTAS"), job.cluster.gpu.sm_count
    return blocks is not None and count > 0 and blocks > MAX_SM_SHARE * count


@collectives_leave_multiprocessors.message
def _(job: Job) -> str:
    return (
        f"NCCL_MAX_CTAS = {integer(job, 'NCCL_MAX_CTAS')} of {job.cluster.gpu.sm_count} "
        "multiprocessors"
    )


@collectives_leave_multiprocessors.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"NCCL_MAX_CTAS": (int(MAX_SM_SHARE * job.cluster.gpu.sm_count),)}


@rule(
    "COM309",
    "Communicator buffers take device memory",
    severity=Severity.WARNING,
    section="7.3",
    source=f"{_ENV}, NCCL_BUFFSIZE (4 MiB) and channels",
    reads=("tp", "cp", "dp", "pp", "ep", "etp"),
    confidence="heuristic",
)
def communicators_are_small(job: Job) -> Mask:
    """Every communicator keeps send and receive buffers in each of its channels.

    A plan with all axes has a dozen communicators. Use fewer groups, or a smaller NCCL_BUFFSIZE.

    Fails: plan(environment=(("NCCL_BUFFSIZE", "33554432"),), tp=4, pp=2)
    Passes: plan(tp=4, pp=2)
    """
    return _buffer_bytes(job) > MAX_BUFFER_SHARE * job.cluster.gpu.memory_bytes


def _process_groups(job: Job) -> Any:
    """Communicators of a rank: as stated, or the world, each axis, and the usual unions of axes."""
    stated = job.workload.runtime.process_groups
    if stated is not None:
        return stated
    p = job.plan
    several = (p.tp > 1, p.cp > 1, p.dp > 1, p.pp > 1, p.ep > 1, p.etp > 1)
    unions = (
        (p.dp > 1) & (p.cp > 1),
        (p.tp > 1) & (p.pp > 1),
        (p.ep > 1) & (expert_data_parallel(p) > 1),
    )
    count: Any = 1
    for present in (*several, *unions):
        count = count + np.where(present, 1, 0)
    return count


def _buffer_bytes(job: Job) -> Any:
    """Bytes of all communicators' buffers, sending and receiving."""
    channels = integer(job, "NCCL_MAX_NCHANNELS") or DEFAULT_CHANNELS
    each = integer(job, "NCCL_BUFFSIZE") or DEFAULT_BUFFER_BYTES
    return _process_groups(job) * (channels * each * 2)


@communicators_are_small.message
def _(job: Job) -> str:
    return (
        f"{_process_groups(job)} communicators hold {format_bytes(float(_buffer_bytes(job)))} of "
        f"{format_bytes(job.cluster.gpu.memory_bytes)}"
    )


communicators_are_small.fix(always(NCCL_BUFFSIZE=(DEFAULT_BUFFER_BYTES,)))


def _stalls(job: Job) -> dict[str, float]:
    """Times, as stated, that some ranks may legally wait in a collective."""
    runtime = job.workload.runtime
    stated = {
        "checkpoint_stall_s": job.workload.loading.checkpoint_stall_s,
        "index_build_s": runtime.index_build_s,
        "compile_s": runtime.compile_s,
    }
    return {name: value for name, value in stated.items() if value is not None}


@rule(
    "COM310",
    "Collective timeout shorter than a legal stall",
    severity=Severity.ERROR,
    section="7.3",
    source="torchtitan config/configs.py CommConfig (0.3.0); Megatron-LM "
    "training/config/common_config.py (0.19.2)",
    confidence="read",
)
def timeout_outlasts_stalls(job: Job) -> Mask:
    """While one rank saves, builds an index or compiles, the others wait in a collective.

    If that lasts longer than the timeout, the watchdog kills a healthy job.

    Fails: plan(collective_timeout_s=100, checkpoint_stall_s=240)
    Fails: plan(collective_timeout_s=600, index_build_s=1800)
    Passes: plan(collective_timeout_s=600, checkpoint_stall_s=240)
    """
    timeout = job.workload.runtime.collective_timeout_s
    return timeout is not None and timeout < max(_stalls(job).values(), default=0.0)


@timeout_outlasts_stalls.message
def _(job: Job) -> str:
    timeout = job.workload.runtime.collective_timeout_s or 0.0
    longer = [f"{n} = {format_duration(v)}" for n, v in _stalls(job).items() if v > timeout]
    return f"collective_timeout_s = {format_duration(timeout)}, but {', '.join(longer)}"


@timeout_outlasts_stalls.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    return {"collective_timeout_s": (2 * max(_stalls(job).values()),)}


@rule(
    "COM312",
    "InfiniBand timeout short for a very large fabric",
    severity=Severity.INFO,
    section="7.3",
    source=f"{_ENV}, NCCL_IB_TIMEOUT",
    confidence="doc",
)
def fabric_timeout_is_patient(job: Job) -> Mask:
    """Under congestion a packet may be acknowledged late; a short timeout ends the job for it.

    Fails: plan(nodes=1024, environment=(("NCCL_IB_TIMEOUT", "18"),))
    Passes: plan(nodes=1024, environment=(("NCCL_IB_TIMEOUT", "22"),))
    """
    timeout = integer(job, "NCCL_IB_TIMEOUT")
    large = job.cluster.num_nodes >= LARGE_FABRIC_NODES
    verbs = network_kind(job.cluster) in ("infiniband", "roce")
    return timeout is not None and timeout < SAFE_IB_TIMEOUT and large and verbs


@fabric_timeout_is_patient.message
def _(job: Job) -> str:
    return f"NCCL_IB_TIMEOUT = {integer(job, 'NCCL_IB_TIMEOUT')} on {job.cluster.num_nodes} nodes"


fabric_timeout_is_patient.fix(always(NCCL_IB_TIMEOUT=(22,)))


@rule(
    "COM314",
    "Offload and network staging share the path to the host",
    severity=Severity.INFO,
    section="7.3",
    source="Megatron-Bridge docs/performance-guide.md (067f987d), activation offloading",
    reads=("offload_activations", "offload_optimizer"),
    confidence="doc",
)
def network_bypasses_host_path(job: Job) -> Mask:
    """On hosts with a coherent link, network traffic can reach the GPU beside it or through it.

    Through it, it collides with what is offloaded.

    Fails: plan(offload_optimizer=1.0, host_bytes_per_s_per_gpu=450e9,
        environment=(("NCCL_NET_GDR_C2C", "0"),))
    Passes: plan(offload_optimizer=1.0, host_bytes_per_s_per_gpu=450e9,
        environment=(("NCCL_NET_GDR_C2C", "1"),))
    """
    coherent = job.cluster.host.bytes_per_s_per_gpu >= COHERENT_HOST_BYTES_PER_S
    if not coherent or integer(job, "NCCL_NET_GDR_C2C") != 0:
        return False
    return (job.plan.offload_activations > 0) | (job.plan.offload_optimizer > 0)


@network_bypasses_host_path.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"offload_optimizer {p.offload_optimizer}, offload_activations {p.offload_activations} "
        "with NCCL_NET_GDR_C2C = 0"
    )


network_bypasses_host_path.fix(always(NCCL_NET_GDR_C2C=(1,)))
