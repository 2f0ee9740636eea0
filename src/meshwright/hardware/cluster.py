"""Where a model is trained: a GPU type, how many, and the links between them.

Links are levels from the inside out: the NVLink (or xGMI, ICI, PCIe) domain first, then the rail or
leaf switch, then the spine. A group of ranks is described by its size and its stride in rank order;
`members_within` says how many of them share a domain.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.hardware.curves import CollectiveCurve  # noqa: TC001 - read by base.decode
from meshwright.hardware.measured import Curves, Overheads  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator. Dense peak rates in FLOP/s by precision name; memory in bytes.

    `generation` keys the fitted efficiencies ("volta", "ampere", "hopper", "blackwell", "ada",
    "cdna3", "ascend910b", "tpu-v5p", ...). `memory_bytes` is what the device reports as usable.
    `curves` are those of the machine at hand, where it or a part of it was measured.
    """

    name: str
    generation: str
    memory_bytes: float
    memory_bytes_per_s: float
    peak_flops: Mapping[str, float]  # keys: fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4
    sm_count: int = 0
    aliases: tuple[str, ...] = ()
    source: str = ""
    date: str = ""
    curves: Curves | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One level of the network.

    `domain` is the number of GPUs that reach each other at this level without going up one.
    `bytes_per_s` is per GPU and direction, `latency_s` one hop including the software launch.
    `kind` is "nvlink", "xgmi", "pcie", "ici", "hccs", "memory" (ranks of one host that exchange
    through its memory), "infiniband", "roce", "efa" or "ethernet".
    `peer_bytes_per_s` is what one pair of GPUs reaches where there is no switch (0 = as much as
    `bytes_per_s`): a full mesh of 8 gives each pair a seventh, one torus axis two links of six.
    `oversubscription` divides the rate for traffic that crosses this level (1 = full bisection).
    """

    name: str
    kind: str
    domain: int
    bytes_per_s: float
    latency_s: float
    peer_bytes_per_s: float = 0.0
    oversubscription: float = 1.0
    nics_per_node: int = 0
    in_network_reduction: bool = False
    rail_optimized: bool = False  # NIC i of every node hangs on leaf switch i
    source: str = ""
    curves: Mapping[str, CollectiveCurve] | None = None  # by collective, "send" among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine around the GPUs: memory in bytes, cores, GPU-to-host bandwidth per GPU."""

    memory_bytes: float = 2.0e12
    cores: int = 0
    bytes_per_s_per_gpu: float = 25e9
    storage_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`num_gpus` equal GPUs, `gpus_per_node` to a node, joined by `links` from the inside out."""

    gpu: Gpu
    num_gpus: int
    gpus_per_node: int
    links: tuple[Link, ...]
    host: Host = field(default_factory=Host)
    price_per_gpu_hour: float | None = None
    price_source: str = ""
    name: str = ""
    overheads: Overheads | None = None  # of the stack that was measured on this machine
    shares: Mapping[str, float] | None = None  # of the cost model's fits, from traces of a run

    @property
    def num_nodes(self) -> int:
        """Nodes, the last one possibly not full."""
        return -(-self.num_gpus // self.gpus_per_node)

    @property
    def scale_up_domain(self) -> int:
        """GPUs joined by the innermost link."""
        return min(self.links[0].domain, self.num_gpus)


def members_within(size: Any, stride: Any, domain: int) -> Any:
    """How many members of a group of `size` ranks, `stride` apart, share a domain of `domain` GPUs.

    Groups start at multiples of size*stride, so a domain holds domain/stride of them, at least one
    and at most the whole group. Scalars or columns.
    """
    return np.clip(domain // np.maximum(stride, 1), 1, size)
