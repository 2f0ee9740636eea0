"""Time of collectives on the links that a group of ranks really crosses.

A group is `size` ranks, `stride` apart in rank order. At each link level the members inside one
domain act together: a ring over n ranks, k of them in a node, moves 2(n-1)/n of the data over
the k network ports of a node and over the inner link, and the slower of the two sets the
pace (NCCL's ring; Thakur et al., IJHPCA 2005, for the volumes). The leg inside a domain follows the
measured curves of `hardware.efficiency`; across domains latency grows with the ring's steps.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.hardware import efficiency
from meshwright.hardware.cluster import members_within

if TYPE_CHECKING:
    from meshwright.hardware.cluster import Cluster, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Where the ranks of one mesh axis lie. Sizes and rates are scalars or columns.

    `inner` members share the innermost domain, whose `link` has measured curves, reached to the
    share `scale_up`; `outer_rate` is bytes/s per GPU across domains (the slowest outer level that
    the group reaches), `outer_latency_s` one hop there. Collectives `in_runs` were measured in
    runs: no share of theirs is left out.
    """

    link: Link
    scale_up: float
    size: Any
    inner: Any
    outer_rate: Any
    outer_latency_s: Any
    in_runs: frozenset[str] = frozenset()

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
    outer_rate: Any = np.inf
    outer_latency: Any = 0.0
    for below, link in pairwise(links):
        crosses = size * stride > below.domain
        rate = link.bytes_per_s / link.oversubscription * scale_out
        outer_rate = np.where(crosses, np.minimum(outer_rate, rate), outer_rate)
        outer_latency = np.where(crosses, np.maximum(outer_latency, link.latency_s), outer_latency)
    return Group(
        link=links[0],
        scale_up=scale_up,
        size=size,
        inner=members_within(size, stride, links[0].domain),
        outer_rate=outer_rate,
        outer_latency_s=outer_latency * latency,
        in_runs=_in_runs(cluster),
    )


def _in_runs(cluster: Cluster) -> frozenset[str]:
    """The collectives of the innermost link that traces of a run told."""
    curves = cluster.gpu.curves
    return frozenset(cluster.links[0].curves or ()) if curves and curves.partial else frozenset()


def all_gather_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to all-gather (or reduce-scatter) `total_bytes`, the size of the whole tensor."""
    return np.maximum(_inner_s(group, "all_gather", total_bytes), _outer_s(group, total_bytes))


def all_reduce_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to all-reduce `total_bytes`: across domains a reduce-scatter and an all-gather."""
    return np.maximum(
        _inner_s(group, "all_reduce", total_bytes), 2.0 * _outer_s(group, total_bytes)
    )


def gather_parameters_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to gather sharded parameters; with the stack's own copies where it was measured."""
    kind = _measured_else(group, "gather_parameters", "all_gather")
    return np.maximum(_inner_s(group, kind, total_bytes), _outer_s(group, total_bytes))


def reduce_gradients_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to reduce-scatter gradients, likewise."""
    kind = _measured_else(group, "reduce_gradients", "reduce_scatter", "all_gather")
    return np.maximum(_inner_s(group, kind, total_bytes), _outer_s(group, total_bytes))


def all_reduce_gradients_s(group: Group, total_bytes: Any) -> Any:
    """Seconds to all-reduce gradients of replicas, likewise; else a scatter and a gather."""
    if not efficiency.is_measured(group.link, "all_reduce_gradients"):
        if efficiency.is_measured(group.link, "all_reduce"):
            return all_reduce_s(group, total_bytes)
        return 2.0 * reduce_gradients_s(group, total_bytes)
    inner = _inner_s(group, "all_reduce_gradients", total_bytes)
    return np.maximum(inner, 2.0 * _outer_s(group, total_bytes))


def all_to_all_s(group: Group, send_bytes: Any, *, outer_bytes_share: Any = 1.0) -> Any:
    """Seconds of an all-to-all in which each rank holds `send_bytes` for the whole group.

    `outer_bytes_share` is the part of the traffic between domains that really crosses (tokens sent
    once per node and spread inside it).
    """
    n, k = group.size, group.inner
    inner = _inner_s(group, "all_to_all", send_bytes * (k / n))
    outer = (n - k) / n * send_bytes * outer_bytes_share / group.outer_rate
    return np.maximum(inner, outer + latency_s(group))


def point_to_point_s(group: Group, send_bytes: Any) -> Any:
    """Seconds to hand `send_bytes` to the next rank of the group over its slowest link."""
    if efficiency.is_measured(group.link, "send") and np.all(group.outer <= 1):
        return _inner_s(group, "send", send_bytes)
    inner_rate = group.link.bytes_per_s * group.scale_up
    crosses = group.outer > 1
    rate = np.where(crosses, np.minimum(group.outer_rate, inner_rate), inner_rate)
    latency = np.where(crosses, group.outer_latency_s, group.link.latency_s)
    return np.where(group.size > 1, send_bytes / rate + latency, 0.0)


def latency_s(group: Group) -> Any:
    """Latency of one collective across domains: a ring's steps at the slow hop.

    All ranks of a ring step together, so each of its size-1 steps waits for the network hop.
    """
    return np.where(group.outer > 1, group.outer_latency_s * (group.size - 1), 0.0)


def _inner_s(group: Group, kind: str, total_bytes: Any) -> Any:
    """The leg inside one domain, by the measured curve of its link."""
    seconds = efficiency.collective_s(group.link, kind, total_bytes, group.inner)
    return seconds if kind in group.in_runs else seconds / group.scale_up


def _measured_else(group: Group, *kinds: str) -> str:
    """The first of `kinds` that was measured on the link, else the last, which is packaged."""
    return next((k for k in kinds if efficiency.is_measured(group.link, k)), kinds[-1])


def _outer_s(group: Group, total_bytes: Any) -> Any:
    """The leg across domains: a ring through all ranks, `inner` of each domain bringing a port."""
    share = np.where(group.outer > 1, (group.size - 1) / group.size, 0.0)
    return share * total_bytes / (group.inner * group.outer_rate) + latency_s(group)
