"""The cluster of a row: GPU and node from the catalogue, the rate between nodes as written."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.evidence.row import CannotExpress
from meshwright.hardware import catalogue

if TYPE_CHECKING:
    from meshwright.evidence.row import Row
    from meshwright.hardware.cluster import Cluster, Link

_SEGMENT = re.compile(r";|,|\s\+\s|\band\b|:\s(?=NVLink)")
_NOT_BETWEEN_NODES = re.compile(
    r"storage|management|in-node(?!.*per)|for NS|nvlink|nvswitch|xgmi", re.IGNORECASE
)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:Gb(?:/s|ps|/sec|E|it/s)?)(?![A-Za-z])", re.IGNORECASE)
_GIGABYTES = re.compile(r"\d\s*GB")
_COUNT = re.compile(r"(\d+)\s*x\s*")
_FABRICS = (
    (r"\befa\b", "efa-3200"),
    (r"omni-?path", "omni-path-4x100"),
    (r"infiniband|\bib\b|[nhx]dr\b", "ib-ndr-400"),
    (r"roce", "roce-400"),
    (r"ethernet|gbe", "ethernet-100"),
)
_SLICES = re.compile(r"between (\d+) slices", re.IGNORECASE)


def cluster_of(row: Row) -> Cluster:
    """The cluster of a row.

    Raises CannotExpress where GPU or count is missing or the catalogue has no such device.
    """
    name = row.text("gpu")
    if not name:
        raise CannotExpress("gpu is not stated")
    world = row.needed("num_gpus")
    count = _count(row, world)
    plain = _from_catalogue(name, count=count, world=world, fabric=None)
    per_gpu = scale_out_bytes_per_s(
        row.text("interconnect"), gpus_per_node=row.integer("gpus_per_node") or plain.gpus_per_node
    )
    if per_gpu is None:
        return replace(plain, num_gpus=world)
    built = _from_catalogue(name, count=count, world=world, fabric=_fabric(row))
    links = tuple(_with_rate(link, per_gpu, built) for link in built.links)
    return replace(built, num_gpus=world, links=links)


def _count(row: Row, world: int) -> int | None:
    """GPUs in one unit of the cluster: a node, or a slice of a torus; None for the usual node."""
    slices = _SLICES.search(row.text("interconnect"))
    if slices:
        return max(world // max(int(slices.group(1)), 1), 1)
    if row.says("gpu", r"\btpu"):
        return world
    per_node = row.integer("gpus_per_node")
    return min(per_node, world) if per_node and per_node > 0 else None


@cache
def _from_catalogue(name: str, *, count: int | None, world: int, fabric: str | None) -> Cluster:
    """The catalogue's cluster; its own node size where the row's does not exist there."""
    device = catalogue.gpu(name).name
    usual = catalogue.cluster(device, nodes=1, fabric=fabric).gpus_per_node
    unit = min(usual, world) if count is None else count
    try:
        return catalogue.cluster(f"{device}:{unit}", nodes=-(-world // unit), fabric=fabric)
    except MeshwrightError:
        return catalogue.cluster(device, nodes=-(-world // usual), fabric=fabric)


def _fabric(row: Row) -> str | None:
    """The catalogue's fabric of the kind that the row names, for its latency."""
    text = ";".join(_between_nodes(row.text("interconnect")))
    found = (name for pattern, name in _FABRICS if re.search(pattern, text, re.IGNORECASE))
    return next(found, None)


def _with_rate(link: Link, per_gpu: float, built: Cluster) -> Link:
    """The link at the row's rate, when it is one between nodes."""
    if link is built.links[0] or link.domain <= built.gpus_per_node:
        return link
    return replace(link, bytes_per_s=per_gpu)


def scale_out_bytes_per_s(text: str, *, gpus_per_node: int) -> float | None:
    """Bytes per second that one GPU can send out of its node, None where the text has no rate.

    Reads counts and rates such as `4x Omni-Path 100 Gb/s per node`, `RoCE 400 Gb/s per GPU`,
    `Compute: 8x ConnectX-7 IB NDR 400Gb/s`; links inside the node, storage and management networks
    are passed over, and the fastest of the rest counts.
    """
    rates = [_segment_rate(segment, gpus_per_node) for segment in _between_nodes(text)]
    return max((rate for rate in rates if rate is not None), default=None)


def _between_nodes(text: str) -> list[str]:
    """The stretches of text that are about the network between nodes."""
    return [s for s in _SEGMENT.split(text) if not _NOT_BETWEEN_NODES.search(s)]


def _segment_rate(segment: str, gpus_per_node: int) -> float | None:
    """Bytes per second and GPU of one stretch of text, None without a rate in bits.

    A rate written as Ethernet's beside InfiniBand is that of another network.
    """
    if re.search(r"GbE.*infiniband|infiniband.*GbE", segment, re.IGNORECASE):
        return None
    rates = [float(r) for r in _RATE.findall(_GIGABYTES.sub("", segment))]
    if not rates:
        return None
    count = _COUNT.search(segment)
    gbit_per_s = max(rates) * (int(count.group(1)) if count else 1)
    is_each = re.search(r"per (gpu|npu|chip|device|accelerator)", segment, re.IGNORECASE)
    return gbit_per_s * 1e9 / 8 / (1 if is_each else gpus_per_node)
