"""Time of collectives on the links that a group of ranks really crosses.

A group is `size` ranks, `stride` apart in rank order. At each link level the members inside one
domain act together: a ring over k members in a node and m nodes moves 2(m-1)/m of the data over
k network ports while 2(n-1)/n of it crosses the inner link, and the slower of the two sets the
pace (NCCL's ring; Thakur et al., IJHPCA 2005, for the volumes). Latency grows with the
logarithm of a group inside one domain, and with the ring's steps once it leaves the domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.hardware.cluster import members_within

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Where the ranks of one mesh axis lie. All fields are scalars or columns.

    `inner` members share the innermost domain; `inner_rate` and `outer_rate` are bytes/s per GPU
    inside it and across it (the slowest outer level that the group reaches).
    """

    size: Any
    inner: Any
    inner_rate: Any
    outer_rate: Any
    inner_latency_s: Any
    outer_latency_s: Any

    @property
    def outer(self) -> Any:
        """Domains that the group spans."""
        return -(-self.size // self.inner)


def place(
    cluster: Cluster,
    size: Any,
    stride: Any,
    *,
    scale_up: float = 1.0,
    scale_out: float = 1.0,
    latency: float = 1.0,
) -> Group:
    """The group of `size` ranks `stride` apart on this cluster.

    Rates are multiplied by the given shares, the latency of network hops by `latency`.
    """
    links = cluster.links
    inner = members_within(size, stride, links[0].domain)
    outer_rate: Any = np.inf
    outer_latency: Any = 0.0
    for below, link in pairwise(links):
        crosses = size * stride > below.domain
        rate = link.bytes_per_s / link.oversubscription * scale_out
        outer_rate = np.where(crosses, np.minimum(outer_rate, rate), outer_rate)
        outer_latency = np.where(crosses, np.maximum(outer_latency, link.latency_s), outer_latency)
    return Group(
        size=size,
        inner=inner,
        inner_rate=links[0].bytes_per_s * scale_up,
        outer_rate=outer_rate,
        inner_latency_s=links[0].latency_s,
        outer_latency_s=outer_latency * latency,
    )


def all_gather_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to all-gather (or reduce-scatter) `total_bytes`, the size of the whole tensor."""
    n, m, k = group.size, group.outer, group.inner
    inner = (n - 1) / n * total_bytes / group.inner_rate
    outer = (m - 1) / m * total_bytes / (k * group.outer_rate)
    return np.maximum(inner, outer) + latency_s(group)


def all_reduce_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to all-reduce `total_bytes`: a reduce-scatter and an all-gather."""
    return 2.0 * all_gather_s(group, total_bytes)


def all_to_all_s(group: Group, send_bytes: Any, *, outer_bytes_share: Any = 1.0) -> Any:
    """Seconds of an all-to-all in which each rank holds `send_bytes` for the whole group.

    `outer_bytes_share` is the part of the traffic between domains that really crosses (tokens sent
    once per node and spread inside it).
    """
    n, k = group.size, group.inner
    inner = (k - 1) / n * send_bytes / group.inner_rate
    outer = (n - k) / n * send_bytes * outer_bytes_share / group.outer_rate
    return np.maximum(inner, outer) + latency_s(group)


def point_to_point_s(group: Group, send_bytes: Any) -> Any:
    """Seconds to hand `send_bytes` to the next rank of the group over its slowest link."""
    rate = np.where(
        group.outer > 1, np.minimum(group.outer_rate, group.inner_rate), group.inner_rate
    )
    latency = np.where(group.outer > 1, group.outer_latency_s, group.inner_latency_s)
    return np.where(group.size > 1, send_bytes / rate + latency, 0.0)


def latency_s(group: Group) -> Any:
    """Latency of one collective: log2 steps inside one domain, else a ring's steps at the slow hop.

    All ranks of a ring step together, so each of its size-1 steps waits for the network hop.
    """
    inner = group.inner_latency_s * np.ceil(np.log2(np.maximum(group.inner, 1)))
    return np.where(group.outer > 1, group.outer_latency_s * (group.size - 1), inner)
