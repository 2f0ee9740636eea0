"""Nouns from data files: a GPU, and a cluster from GPU, node and fabric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.words import shown
from meshwright.hardware.cluster import Cluster, Gpu, Host, Link

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIB = 2.0**30
MOST_NODES = 1_000_000


def gpu_of(entry: Mapping[str, Any]) -> Gpu:
    """The noun of a GPU file: TFLOP/s to FLOP/s, GiB to bytes."""
    return Gpu(
        name=entry["name"],
        generation=entry["generation"],
        memory_bytes=entry["memory_gib"] * GIB,
        memory_bytes_per_s=entry["memory_bytes_per_s"],
        peak_flops={k: v * 1e12 for k, v in entry["peak_tflops"].items()},
        sm_count=entry.get("sm_count", 0),
        aliases=tuple(entry.get("aliases", ())),
        source=entry["source"],
        date=entry["date"],
    )


def host_of(entry: Mapping[str, Any]) -> Host:
    """The noun of a node file's [host] table."""
    host = entry.get("host", {})
    return Host(
        memory_bytes=host["memory_gb"] * 1e9,
        cores=host["cores"],
        bytes_per_s_per_gpu=host["gb_per_s_per_gpu"] * 1e9,
        storage_bytes_per_s=host.get("storage_gb_per_s", 0.0) * 1e9,
    )


def assemble(
    gpu: Gpu,
    *,
    count: int,
    nodes: int,
    node: Mapping[str, Any],
    fabric: Mapping[str, Any],
) -> Cluster:
    """`nodes` times `count` GPUs.

    A count beyond the GPUs of one host is the part of a scale-up domain that is in use ("GB200:64"
    is 16 trays of a rack of 72, "TPU-v5p:64" a slice); below, the part of a host.
    """
    num_gpus = count * nodes
    inner = _scale_up_links(node, count=count, num_gpus=num_gpus)
    per_node = min(count, node["gpus_per_node"])
    links = (*inner, *_scale_out_links(fabric, node, inner, per_node=per_node, num_gpus=num_gpus))
    return Cluster(
        gpu=gpu,
        num_gpus=num_gpus,
        gpus_per_node=per_node,
        links=links,
        host=host_of(node),
        name=f"{nodes} x {count} {gpu.name} ({node['slug']}, {fabric['slug']})",
    )


def holds(count: int, node: Mapping[str, Any]) -> bool:
    """Whether a host of this kind, or the scale-up domain it is part of, has `count` GPUs."""
    return 1 <= count <= _largest(node)


def _largest(node: Mapping[str, Any]) -> int:
    return max([int(node["gpus_per_node"]), *(int(link["domain"]) for link in node["links"])])


def check_nodes(nodes: int) -> None:
    """Raises `MeshwrightError` for a number of nodes that no cluster has."""
    if not 1 <= nodes <= MOST_NODES:
        hint = f"type --nodes, 1 to {MOST_NODES}"
        raise MeshwrightError(f"{shown(nodes)} nodes make no cluster", hint=hint)


def check_count(count: int, node: Mapping[str, Any]) -> None:
    """Raises `MeshwrightError` when a node, or the domain it is part of, lacks `count` GPUs."""
    if not holds(count, node):
        raise MeshwrightError(
            f"{node['slug']} has no {count} GPUs to a node",
            hint=f"type a count between 1 and {_largest(node)}, and more --nodes",
        )
    if count > node["gpus_per_node"] and count % node["gpus_per_node"]:
        raise MeshwrightError(
            f"{count} GPUs do not fill hosts of {node['gpus_per_node']}",
            hint=f"type a multiple of {node['gpus_per_node']}",
        )


def _scale_up_links(node: Mapping[str, Any], *, count: int, num_gpus: int) -> tuple[Link, ...]:
    """The node's own links, each domain cut to what is in use."""
    beyond_host = count > node["gpus_per_node"]
    links: list[Link] = []
    for raw in node["links"]:
        domain = raw["domain"]
        if domain <= node["gpus_per_node"] or beyond_host:
            domain = min(domain, count)
        elif num_gpus > domain:
            domain = node.get("scale_up_domain_when_many", domain)
        links.append(link_of(raw, domain=domain))
    return tuple(links)


def link_of(raw: Mapping[str, Any], *, domain: int) -> Link:
    """The noun of one [[links]] table."""
    return Link(
        name=raw["name"],
        kind=raw["kind"],
        domain=domain,
        bytes_per_s=float(raw["bytes_per_s"]),
        latency_s=raw["latency_s"],
        peer_bytes_per_s=raw.get("peer_bytes_per_s", 0.0),
        oversubscription=raw.get("oversubscription", 1.0),
        in_network_reduction=raw.get("in_network_reduction", False),
        source=raw.get("source", ""),
    )


def _scale_out_links(
    fabric: Mapping[str, Any],
    node: Mapping[str, Any],
    inner: Sequence[Link],
    *,
    per_node: int,
    num_gpus: int,
) -> list[Link]:
    """The fabric's levels up to the one that spans the cluster; none when the node spans it."""
    links: list[Link] = []
    reached = max((link.domain for link in inner), default=1)
    for level in fabric["levels"]:
        if reached >= num_gpus:
            break
        domain = min(level["domain_nodes"] * per_node or num_gpus, num_gpus)
        if domain > reached:
            links.append(_level(fabric, level, node, per_node=per_node, domain=domain))
            reached = domain
    return links


def _level(
    fabric: Mapping[str, Any],
    level: Mapping[str, Any],
    node: Mapping[str, Any],
    *,
    per_node: int,
    domain: int,
) -> Link:
    nics = fabric.get("nics_per_node", fabric.get("nics_per_gpu", 0) * per_node)
    single = len(fabric["levels"]) == 1
    return Link(
        name=fabric["title"] if single else f"{fabric['title']}: {level['name']}",
        kind=fabric["kind"],
        domain=domain,
        bytes_per_s=_bytes_per_s(fabric, node, per_node=per_node),
        latency_s=level["latency_s"],
        oversubscription=level["oversubscription"],
        nics_per_node=nics,
        in_network_reduction=fabric.get("in_network_reduction", False),
        rail_optimized=fabric.get("rail_optimized", False),
        source=fabric["source"],
    )


def _bytes_per_s(fabric: Mapping[str, Any], node: Mapping[str, Any], *, per_node: int) -> float:
    """What one GPU sends when all of the node send: its NICs, or its share of the node's."""
    nic_bytes_per_s: float = fabric["nic_gbit_per_s"] * 1e9 / 8
    if "nics_per_gpu" in fabric:
        return nic_bytes_per_s * float(fabric["nics_per_gpu"])
    nics: int = fabric["nics_per_node"]
    attached = -(-nics // int(node["gpus_per_node"]))
    return nic_bytes_per_s * min(nics / per_node, attached)
