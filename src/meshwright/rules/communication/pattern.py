"""COM2xx: which group crosses which link, in which order, beside what.

Section 7.2 of the guidelines. Whether a transfer can hide behind arithmetic is in `overlap.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.base.units import format_rate
from meshwright.rules.environment import integer
from meshwright.rules.estimate import group_bytes_per_s, is_pre_blackwell
from meshwright.rules.nearest import divisors_near
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

FLAT_RING_RANKS = 512
FLAT_RING_NODES = 32
ORDERED_LAUNCH_VERSION = (2, 26)
_MEGATRON = ("default", "megatron", "megatron-bridge-2026", "nemo-2025")  # launch in order
_GUIDE = "Megatron-Bridge docs/performance-guide.md (067f987d)"


# Groups on links


@rule(
    "COM204",
    "Tensor parallelism is not the innermost axis",
    severity=Severity.WARNING,
    section="7.2",
    source="Megatron-LM parallel_state.initialize_model_parallel, order; Llama 3 (arXiv "
    "2407.21783) section 3.3.2",
    reads=("tp",),
    confidence="doc",
)
def tensor_parallel_is_innermost(job: Job) -> Mask:
    """Neighboring ranks share the fastest link, and tp moves the most bytes.

    Behind another axis its ranks lie nodes apart although they would fit into one. The usual order,
    fastest link first, is tp, cp, ep, dp, pp.

    Fails: plan(tp=4, rank_order="dp-tp-pp")
    Passes: plan(tp=4, rank_order="tp-dp-pp")
    """
    axes = _axes(job)
    return job.plan.tp > 1 if axes and axes[0] != "tp" else False


def _axes(job: Job) -> list[str]:
    """Axes from the fastest link outward, empty when not stated."""
    order = job.workload.runtime.rank_order
    return order.split("-") if order else []


@tensor_parallel_is_innermost.message
def _(job: Job) -> str:
    order, first = job.workload.runtime.rank_order, _axes(job)[0]
    return f"rank order {order} puts {first} before tp {job.plan.tp}"


tensor_parallel_is_innermost.fix(always(rank_order=("tp-cp-ep-dp-pp",)))


@rule(
    "COM205",
    "Groups straddle the fast domain's border",
    severity=Severity.WARNING,
    section="7.2",
    source=f"{_GUIDE}, NVL72",
    reads=("tp", "cp"),
    confidence="doc",
)
def groups_fit_domains(job: Job) -> Mask:
    """A group smaller than the domain that does not divide it crosses the border somewhere.

    Those groups run at network speed and all others wait for them: 72 is no multiple of 16.

    Fails: plan(gpus_per_node=4, nodes=36, link_domain=72, tp=8, cp=2)
    Passes: plan(gpus_per_node=4, nodes=36, link_domain=72, tp=4, cp=2)
    """
    size, domain = job.plan.tp * job.plan.cp, job.cluster.links[0].domain
    if job.cluster.num_gpus <= domain:
        return False
    return (size > 1) & (size < domain) & (domain % size != 0)


@groups_fit_domains.message
def _(job: Job) -> str:
    size, domain = job.plan.tp * job.plan.cp, job.cluster.links[0].domain
    return (
        f"groups of tp {job.plan.tp} x cp {job.plan.cp} = {size} GPUs do not divide domains of "
        f"{domain}"
    )


@groups_fit_domains.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    domain, p = job.cluster.links[0].domain, job.plan
    if domain % p.tp == 0:
        return {"cp": divisors_near(domain // p.tp, p.cp)}
    return {"tp": divisors_near(domain, p.tp)}


@rule(
    "COM206",
    "Expert parallelism wider than the fast domain",
    severity=Severity.WARNING,
    section="7.2",
    source="Megatron-LM megatron/core/transformer/moe/README.md (d98e8a64), guideline 2",
    reads=("ep", "etp", "overlap_ep"),
    confidence="doc",
)
def experts_stay_in_domain(job: Job) -> Mask:
    """Every MoE layer sends all its tokens out and back; across the network that takes long.

    Exposed, it is 30 to 40% of a step. Keep ep*etp inside the domain and let pp cross it, or hide
    the exchange behind another micro-batch.

    Fails: plan(model="qwen3-30b-a3b", ep=32)
    Passes: plan(model="qwen3-30b-a3b", ep=8)
    Passes: plan(model="qwen3-30b-a3b", ep=32, overlap_ep=True)
    """
    if not job.model.is_moe:
        return False
    p = job.plan
    return (p.ep * p.etp > job.cluster.links[0].domain) & np.logical_not(p.overlap_ep)


@experts_stay_in_domain.message
def _(job: Job) -> str:
    p = job.plan
    return (
        f"ep {p.ep} x etp {p.etp} = {p.ep * p.etp} GPUs, over the {job.cluster.links[0].domain} "
        "of the fast domain, and the all-to-all is not overlapped"
    )


@experts_stay_in_domain.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    fitting = max(int(job.cluster.links[0].domain // job.plan.etp), 1)
    return {"ep": (fitting,), "overlap_ep": (True,)}


@rule(
    "COM211",
    "One flat ring over very many ranks",
    severity=Severity.WARNING,
    section="7.2",
    source=f"{_GUIDE}, performance at scale",
    reads=("dp", "cp", "dp_replicate"),
    confidence="doc",
)
def reduction_has_levels(job: Job) -> Mask:
    """A ring's latency grows with its ranks; several hundred want two levels.

    Shard over part of the ranks and replicate over the rest, or reduce in the switches.

    Fails: plan(nodes=64, dp=512)
    Passes: plan(nodes=64, dp=512, dp_replicate=8)
    Passes: plan(nodes=64, dp=512, use_sharp=True)
    """
    if job.workload.runtime.use_sharp or job.cluster.num_nodes <= FLAT_RING_NODES:
        return False
    return (job.plan.dp * job.plan.cp >= FLAT_RING_RANKS) & (job.plan.dp_replicate == 1)


@reduction_has_levels.message
def _(job: Job) -> str:
    p = job.plan
    return f"gradients go around a ring of dp {p.dp} x cp {p.cp} = {p.dp * p.cp} ranks"


@reduction_has_levels.fix
def _(job: Job) -> dict[str, tuple[Any, ...]]:
    ranks = int(job.plan.dp * job.plan.cp)
    return {"dp_replicate": tuple(n for n in (2, 4, 8) if ranks % n == 0)}


@rule(
    "COM219",
    "Pipeline on fast links while data parallelism crosses slow ones",
    severity=Severity.INFO,
    section="7.2",
    source="Llama 3 (arXiv 2407.21783) section 3.3.2",
    reads=("tp", "cp", "pp", "dp"),
    confidence="paper",
)
def pipeline_is_outermost(job: Job) -> Mask:
    """A pipeline needs the least bandwidth of all axes; put it outside dp.

    Fails: plan(pp=8, rank_order="tp-cp-pp-dp")
    Passes: plan(pp=8, rank_order="tp-cp-dp-pp")
    """
    axes = _axes(job)
    if "pp" not in axes or axes[-1] != "dp":
        return False
    p = job.plan
    faster = _axis_bytes_per_s(job, "pp") > 2 * _axis_bytes_per_s(job, "dp")
    return (p.pp > 1) & (p.dp > 1) & faster


def _axis_bytes_per_s(job: Job, axis: str) -> Any:
    """Bytes/s per GPU along an axis in the stated rank order."""
    stride: Any = 1
    for inner in _axes(job):
        if inner == axis:
            break
        if inner in ("tp", "cp", "dp", "pp"):
            stride = stride * getattr(job.plan, inner)
    return group_bytes_per_s(job.cluster, getattr(job.plan, axis), stride)


@pipeline_is_outermost.message
def _(job: Job) -> str:
    rates = {axis: format_rate(float(_axis_bytes_per_s(job, axis))) for axis in ("pp", "dp")}
    return (
        f"rank order {job.workload.runtime.rank_order}: pp {job.plan.pp} at {rates['pp']}, dp "
        f"{job.plan.dp} at {rates['dp']}"
    )


pipeline_is_outermost.fix(always(rank_order=("tp-cp-ep-dp-pp",)))


# Order of launches


@rule(
    "COM203",
    "Overlaps that want opposite numbers of hardware queues",
    severity=Severity.WARNING,
    section="7.2",
    source="Megatron-LM megatron/training/arguments.py validate_args (0.19.2), "
    "CUDA_DEVICE_MAX_CONNECTIONS",
    reads=("tp", "cp", "overlap_tp", "overlap_ep", "zero_stage"),
    confidence="read",
)
def overlaps_share_queues(job: Job) -> Mask:
    """Before Blackwell, one hardware queue makes launch order execution order.

    The overlap of tp and cp with their products relies on one queue, that of FSDP's gathers and of
    the expert exchange on several; one of them is lost. Other stacks overlap tp without a demand
    on queues.

    Fails: plan(tp=4, overlap_tp=True, zero_stage=3)
    Passes: plan(tp=4, overlap_tp=True, zero_stage=1)
    Passes: plan(tp=4, overlap_tp=True, zero_stage=3, gpu_generation="blackwell")
    """
    if job.stack not in _MEGATRON or not is_pre_blackwell(job.cluster):
        return False
    p = job.plan
    one = ((p.tp > 1) | (p.cp > 1)) & p.overlap_tp
    return one & ((p.zero_stage == 3) | p.overlap_ep)


@overlaps_share_queues.message
def _(job: Job) -> str:
    many = "zero_stage 3" if job.plan.zero_stage == 3 else "overlap_ep"
    return f"overlap_tp wants one hardware queue and {many} several, on {job.cluster.gpu.name}"


overlaps_share_queues.fix(always(overlap_tp=(False,)))


@rule(
    "COM207",
    "Several communicators in flight without an order",
    severity=Severity.ERROR,
    section="7.2",
    source="NCCL docs/userguide/source/usage/communicators.rst (2.30.7)",
    confidence="doc",
)
def communicators_have_order(job: Job) -> Mask:
    """Operations of different communicators must start in the same order on every rank.

    Otherwise two ranks wait for each other for ever. From 2.26 NCCL can take the launch order as
    the order; before, the program must serialize them.

    Fails: plan(concurrent_communicators=True, nccl_version=(2, 21))
    Passes: plan(concurrent_communicators=True, nccl_version=(2, 26))
    """
    runtime = job.workload.runtime
    if runtime.nccl_version is None or not runtime.concurrent_communicators:
        return False
    ordered = integer(job, "NCCL_LAUNCH_ORDER_IMPLICIT") == 1
    return runtime.nccl_version < ORDERED_LAUNCH_VERSION and not ordered


@communicators_have_order.message
def _(job: Job) -> str:
    version = ".".join(str(part) for part in job.workload.runtime.nccl_version or ())
    return f"concurrent_communicators = True with NCCL {version}"


communicators_have_order.fix(always(concurrent_communicators=(False,), nccl_version=("2.26",)))


@rule(
    "COM208",
    "CUDA graphs with several GPUs in a process",
    severity=Severity.ERROR,
    section="7.2",
    source="NCCL docs/userguide/source/usage/cudagraph.rst (2.30.7)",
    reads=("cuda_graph",),
    confidence="doc",
)
def graphs_launch_alone(job: Job) -> Mask:
    """Launching a graph may block until all GPUs have launched theirs, which one process cannot.

    Fails: plan(cuda_graph=True, gpus_per_process=8)
    Passes: plan(cuda_graph=True, gpus_per_process=1)
    """
    several = (job.workload.runtime.gpus_per_process or 1) > 1
    return job.plan.cuda_graph if several else False


@graphs_launch_alone.message
def _(job: Job) -> str:
    return f"cuda_graph with {job.workload.runtime.gpus_per_process} GPUs in a process"


graphs_launch_alone.fix(always(gpus_per_process=(1,), cuda_graph=(False,)))
