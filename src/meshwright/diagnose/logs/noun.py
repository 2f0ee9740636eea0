"""What is kept of NCCL's logs and of memory snapshots."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.trace.columns import Left


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """A communicator as NCCL set it up."""

    ident: str
    rank: int
    nranks: int
    cuda_device: int
    bus: str = ""
    channels: int = 0
    transports: Mapping[str, int] = field(
        default_factory=dict
    )  # "P2P/CUMEM", "NET/IB/0/GDRDMA": links
    algorithms: Mapping[str, int] = field(default_factory=dict)  # "Ring LL128": calls, with TUNING


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """An NCCL debug log."""

    file: str
    version: str
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    communicators: tuple[Communicator, ...]
    network: str  # "IB", "Socket", "" unknown
    interfaces: tuple[str, ...]
    warnings: tuple[str, ...]  # distinct WARN lines
    settings: Mapping[str, str]  # NCCL_* set by environment
    left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot:
    """An allocator's history: the peak, what it consisted of, and how much was only reserved."""

    file: str
    device: int
    peak_bytes: int
    peak_at_us: float | None
    reserved_bytes: int  # at the peak
    by_category: Mapping[str, int]  # at the peak: weights, gradients, optimizer, activations, ...
    by_site: tuple[tuple[str, int], ...]  # largest allocation sites at the peak
    fragmentation: float  # reserved and not allocated over reserved, at the peak
    retries: int  # frees and mallocs of segments that stopped the device
    left: tuple[Left, ...] = ()
