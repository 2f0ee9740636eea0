"""Rules about fast paths that the environment takes away from NCCL (section 7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Severity
from meshwright.rules.environment import integer, network, network_kind, variable
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

_ENV = "NCCL docs/userguide/source/env.rst (2.30.7)"
_RDMA = ("infiniband", "roce")  # which NCCL's own verbs transport serves


@rule(
    "COM120",
    "RDMA turned off between nodes",
    severity=Severity.WARNING,
    section="7.1",
    source=f"{_ENV}, NCCL_IB_DISABLE and NCCL_NET",
    confidence="doc",
)
def network_uses_rdma(job: Job) -> Mask:
    """NCCL then talks over TCP sockets, through the host, at a fraction of the network's rate.

    Unset the variable where the nodes have InfiniBand or RoCE.

    Fails: plan(nodes=4, environment=(("NCCL_IB_DISABLE", "1"),))
    Fails: plan(nodes=4, environment=(("NCCL_NET", "Socket"),))
    Passes: plan(nodes=1, environment=(("NCCL_IB_DISABLE", "1"),))
    Passes: plan(nodes=4, environment=(("NCCL_IB_DISABLE", "0"),))
    """
    return bool(_off(job)) and job.cluster.num_nodes > 1 and network_kind(job.cluster) in _RDMA


def _off(job: Job) -> str:
    """The setting that turns RDMA off, "" where none does."""
    if (integer(job, "NCCL_IB_DISABLE") or 0) > 0:
        return f"NCCL_IB_DISABLE = {integer(job, 'NCCL_IB_DISABLE')}"
    chosen = (variable(job, "NCCL_NET") or "").strip()
    return f"NCCL_NET = {chosen}" if chosen.lower() == "socket" else ""


@network_uses_rdma.message
def _(job: Job) -> str:
    link = network(job.cluster)
    return (
        f"{_off(job)}: {job.cluster.num_nodes} nodes exchange over TCP sockets of the network "
        f"instead of RDMA on {link.name if link else 'their fabric'}"
    )


@rule(
    "COM121",
    "Peer access between GPUs turned off",
    severity=Severity.WARNING,
    section="7.1",
    source=f"{_ENV}, NCCL_P2P_DISABLE and NCCL_P2P_LEVEL; NVIDIA/nccl-tests#228",
    confidence="doc",
)
def peers_reach_each_other(job: Job) -> Mask:
    """Without peer access traffic inside a node is copied through host memory, NVLink lies idle.

    The variable is a remedy for boards whose PCIe peer access is broken; unset it elsewhere.

    Fails: plan(environment=(("NCCL_P2P_DISABLE", "1"),))
    Fails: plan(environment=(("NCCL_P2P_LEVEL", "LOC"),))
    Passes: plan(gpus_per_node=1, nodes=8, environment=(("NCCL_P2P_DISABLE", "1"),))
    Passes: plan(environment=(("NCCL_P2P_LEVEL", "NVL"),))
    """
    joined = job.cluster.links[0].kind == "nvlink" and job.cluster.gpus_per_node > 1
    return bool(_peerless(job)) and joined


def _peerless(job: Job) -> str:
    """The setting that turns peer access off, "" where none does."""
    if (integer(job, "NCCL_P2P_DISABLE") or 0) > 0:
        return f"NCCL_P2P_DISABLE = {integer(job, 'NCCL_P2P_DISABLE')}"
    level = (variable(job, "NCCL_P2P_LEVEL") or "").strip().upper()
    return f"NCCL_P2P_LEVEL = {level}" if level in ("LOC", "0") else ""


@peers_reach_each_other.message
def _(job: Job) -> str:
    return (
        f"{_peerless(job)}: the {job.cluster.gpus_per_node} GPUs of a node exchange by copies "
        f"through host memory instead of {job.cluster.links[0].name}"
    )
