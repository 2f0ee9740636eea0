"""Environment variables of the job, as far as they are stated, and facts about its network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster, Link
    from meshwright.plan.job import Job


def variable(job: Job, name: str) -> str | None:
    """The value of an environment variable, None when not stated; the last setting counts."""
    return dict(job.workload.runtime.environment).get(name)


def integer(job: Job, name: str) -> int | None:
    """The variable as a whole number, None when it is not stated or not one."""
    text = variable(job, name)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def algorithms(job: Job) -> tuple[str, ...]:
    """NCCL algorithms that are forced, lower case, empty when none; "^NVLS" forces none."""
    text = job.workload.runtime.nccl_algo or variable(job, "NCCL_ALGO") or ""
    return _choices(text)


def protocols(job: Job) -> tuple[str, ...]:
    """NCCL protocols that are forced, lower case, empty when none."""
    text = job.workload.runtime.nccl_proto or variable(job, "NCCL_PROTO") or ""
    return _choices(text)


def _choices(text: str) -> tuple[str, ...]:
    """Names in "Ring,Tree", in "allreduce:Ring;broadcast:Tree", without those after "^"."""
    parts = [part.split(":")[-1] for part in text.split(";")]
    allowed = [part for part in parts if not part.strip().startswith("^")]
    return tuple(n.strip().lower() for part in allowed for n in part.split(",") if n.strip())


def network(cluster: Cluster) -> Link | None:
    """The link that leaves the innermost domain, None where there is none."""
    return cluster.links[1] if len(cluster.links) > 1 else None


def network_kind(cluster: Cluster) -> str:
    """Its kind, "" where there is none."""
    link = network(cluster)
    return link.kind if link else ""


def is_rail_optimized(cluster: Cluster) -> bool:
    """True when NIC i of every node hangs on the same leaf switch."""
    return any(link.rail_optimized for link in cluster.links[1:])
