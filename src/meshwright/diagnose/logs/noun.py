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
    host: str = ""
    pid: int = -1
    group: str = ""  # NCCL's commId: the same on all of its ranks
    nodes: int | None = None
    local_ranks: int | None = None
    gdr: bool | None = None  # GPU-direct RDMA in the rings
    init_s: float | None = None
    complete: bool = False  # its "Init COMPLETE" is in the log
    calls: Mapping[str, int] = field(default_factory=dict)  # "AllReduce": calls, with COLL
    call_bytes: Mapping[str, int] = field(default_factory=dict)  # of a rank's own buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLog:
    """An NCCL (or RCCL) debug log.

    `ranks` are those of the largest communicator. `warnings` are distinct texts in the order of
    their appearance, `warning_counts` how often each came, numbers and addresses taken as alike.
    `tuning` is NCCL's own model, where it printed it: "AllReduce Ring Simple" -> (latency in
    microseconds, bandwidth in GB/s).
    """

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
    library: str = "NCCL"  # or RCCL
    versions: tuple[str, ...] = ()  # all that appear: more than one is a mixed installation
    networks: Mapping[str, int] = field(default_factory=dict)  # "IB", "Socket": processes
    ib_missing: bool = False  # NCCL looked for InfiniBand and found no device
    bootstrap: tuple[str, ...] = ()  # interfaces of the bootstrap
    warning_counts: Mapping[str, int] = field(default_factory=dict)
    timeouts: tuple[str, ...] = ()  # collectives that PyTorch's watchdog gave up on
    connect_retries: int = 0
    mixed_settings: tuple[str, ...] = ()  # NCCL_* whose value differs between processes
    tuning: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    transports: Mapping[str, int] = field(default_factory=dict)  # of all communicators
    paths: Mapping[str, int] = field(default_factory=dict)  # "NVL/PIX": in and between nodes
    gdr_disabled: tuple[str, ...] = ()  # adapters that may not reach GPUs' memory directly


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySnapshot:
    """An allocator's history: the peak, what it consisted of, and how much was only reserved.

    Without a history (`history` is false) the peak is what was held when the snapshot was taken.
    Categories are "weights", "gradients", "optimizer", "activations", "communication", "data",
    "other", and "before the record" for what was there when recording began; how they are told
    apart is said in `logs.categories`. Sizes are those asked for, before rounding.
    """

    file: str
    device: int
    peak_bytes: int
    peak_at_us: float | None
    reserved_bytes: int  # at the peak
    by_category: Mapping[str, int]  # at the peak, largest first
    by_site: tuple[tuple[str, int], ...]  # largest allocation sites at the peak
    fragmentation: float  # reserved and not allocated over reserved, at the peak
    retries: int  # times that segments were given back to find room for an allocation
    left: tuple[Left, ...] = ()
    history: bool = True
    ooms: int = 0  # allocations that failed
    peak_reserved_bytes: int = 0  # the most that was ever reserved
    allocations: int = 0  # in the history
    settings: Mapping[str, str] = field(default_factory=dict)  # of the allocator
    other_devices: Mapping[int, int] = field(default_factory=dict)  # device -> peak bytes
    predicted_bytes: Mapping[str, int] = field(default_factory=dict)  # by category, and "peak"
