"""Causes in how NCCL was set up, from its debug log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.links import slow_link_takes_us
from meshwright.diagnose.causes.proofs import named, of_ranks
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.diagnosis import Proof

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.logs.noun import Communicator

COMMUNICATION = "communication"
FEW_CHANNELS = 4  # NVLink wants 16 and more, PCIe 2 to 4
MANY_GROUPS = 64  # each takes buffers of its own and a set-up through the store
_DOCS = "NCCL user guide: environment variables and troubleshooting"


def _communicators(case: Case) -> list[Communicator]:
    return [c for log in case.evidence.nccl for c in log.communicators]


def _using(case: Case, *words: str, without: str = "") -> dict[str, int]:
    """Links of communicators over transports whose name holds one of these words."""
    found: dict[str, int] = {}
    for communicator in _communicators(case):
        for transport, links in communicator.transports.items():
            if any(w in transport for w in words) and not (without and without in transport):
                found[transport] = found.get(transport, 0) + links
    return found


def _spans_hosts(case: Case) -> bool:
    return len({host for log in case.evidence.nccl for host in log.hosts}) > 1


def _costs(case: Case) -> dict[str, float]:
    """The time that slow links take, where traces show it."""
    return {name: us for name, us in slow_link_takes_us(case).items() if us}


def _proof(case: Case, used: Mapping[str, int]) -> Proof:
    ranks = sorted({r for log in case.evidence.nccl for r in log.ranks})
    links = ", ".join(f"{n} links over {name}" for name, n in used.items())
    return Proof(text=links, events=named(list(used)), ranks=tuple(ranks[:8]))


@cause(
    "COM921",
    "NCCL talks over sockets between nodes",
    kind=COMMUNICATION,
    source=_DOCS,
    needs=("nccl",),
)
def sockets(case: Case) -> Found | None:
    """NCCL found no InfiniBand or RoCE device it may use and fell back to TCP.

    Shown by: "NET/Socket" in its log. Costs: most of the network's rate, and cores of the host.
    Do: check ibv_devinfo, NCCL_IB_DISABLE, NCCL_IB_HCA, the container's devices, the net plugin.
    """
    used = _using(case, "Socket")
    if not used and not any(log.network == "Socket" for log in case.evidence.nccl):
        return None
    if not used and not _spans_hosts(case):
        return None
    interfaces = [i for log in case.evidence.nccl for i in log.interfaces]
    return Found(
        message="NCCL uses TCP sockets between nodes"
        + (f" ({', '.join(dict.fromkeys(interfaces))})." if interfaces else "."),
        proofs=(_proof(case, used or {"Socket": 1}),),
        lever=lever(
            case,
            "give NCCL its RDMA devices: NCCL_IB_HCA, no NCCL_IB_DISABLE, the container's devices",
            command="NCCL_IB_DISABLE=0",
        ),
        takes_us=_costs(case),
    )


@cause(
    "COM922",
    "The network cannot read GPU memory directly",
    kind=COMMUNICATION,
    source=_DOCS + ": NCCL_NET_GDR_LEVEL",
    needs=("nccl",),
)
def no_direct_rdma(case: Case) -> Found | None:
    """Data passes through the host's memory on its way to the network card.

    Shown by: "NET/IB" links without "GDRDMA". Costs: about half of the rate, and memory bandwidth
    of the host. Do: load nvidia-peermem (or DMA-BUF), put card and GPU under one PCIe switch,
    NCCL_NET_GDR_LEVEL.
    """
    used = _using(case, "NET/IB", without="GDRDMA")
    if not used:
        return None
    return Found(
        message="NCCL's InfiniBand links go through host memory (no GPUDirect RDMA).",
        proofs=(_proof(case, used),),
        lever=lever(
            case,
            "load nvidia-peermem or use DMA-BUF; card and GPU under one PCIe switch",
            changes={"workload.runtime.gpu_direct_rdma": True},
        ),
        takes_us=_costs(case),
    )


@cause(
    "COM923",
    "GPUs of a node talk through host memory",
    kind=COMMUNICATION,
    source=_DOCS + ": NCCL_P2P_LEVEL",
    needs=("nccl",),
)
def shared_memory(case: Case) -> Found | None:
    """Peer access between GPUs is not used: every byte crosses PCIe twice.

    Shown by: "SHM" links in NCCL's log. Costs: NVLink's or PCIe's peer rate.
    Do: no NCCL_P2P_DISABLE, ACS off in the BIOS, IOMMU off or in passthrough mode;
    `nvidia-smi topo -p2p r` shows it.
    """
    used = _using(case, "SHM")
    if not used:
        return None
    return Found(
        message="NCCL moves data between GPUs of a node through shared host memory.",
        proofs=(_proof(case, used),),
        lever=lever(
            case,
            "allow peer access: NCCL_P2P_DISABLE unset, PCIe ACS off",
            command="nvidia-smi topo -p2p r",
        ),
        takes_us=_costs(case),
    )


@cause(
    "COM924",
    "NCCL uses few channels",
    kind=COMMUNICATION,
    source=_DOCS + ": NCCL_MIN_NCHANNELS",
    needs=("nccl",),
)
def few_channels(case: Case) -> Found | None:
    """A communicator inside a node has so few channels that it cannot fill its links.

    Shown by: fewer than four channels with peer-to-peer links in NCCL's log.
    Usual reasons: NCCL_MAX_NCHANNELS or NCCL_MAX_CTAS, links that are down, an odd set of GPUs.
    Do: unset them; `nvidia-smi nvlink -s`.
    """
    few = [
        c
        for c in _communicators(case)
        if 0 < c.channels < FEW_CHANNELS and c.nranks > 1 and any("P2P" in t for t in c.transports)
    ]
    if not few:
        return None
    least = min(few, key=lambda c: c.channels)
    return Found(
        message=f"{len(few)} communicators have only {least.channels} to {FEW_CHANNELS - 1} "
        "channels.",
        proofs=(of_ranks(f"communicator {least.ident}, {least.nranks} ranks", (least.rank,)),),
        lever=lever(
            case,
            "unset NCCL_MAX_NCHANNELS and NCCL_MAX_CTAS; check that all links are up",
            command="nvidia-smi nvlink -s",
        ),
        takes_us={},
        confidence="medium",
    )


@cause(
    "COM925",
    "NCCL warns",
    kind=COMMUNICATION,
    source=_DOCS,
    needs=("nccl",),
)
def nccl_warnings(case: Case) -> Found | None:
    """NCCL's log has lines marked WARN: refused calls, missing devices, timeouts.

    Shown by: these lines. Do: read them; each names its file and line in NCCL.
    """
    lines = list(dict.fromkeys(w for log in case.evidence.nccl for w in log.warnings))
    if not lines:
        return None
    ranks = tuple(sorted({r for log in case.evidence.nccl if log.warnings for r in log.ranks}))
    return Found(
        message=f"NCCL's log has {len(lines)} distinct warnings.",
        proofs=(Proof(text="warnings", events=named(lines), ranks=ranks[:8]),),
        lever=lever(case, "look into the warnings named here"),
        takes_us={},
        ranks=ranks if len(case.evidence.nccl) > 1 else (),
    )


@cause(
    "COM926",
    "Very many communicators",
    kind=COMMUNICATION,
    source="meshwright rules COM3: process groups; NCCL user guide: creating communicators",
    needs=("nccl",),
)
def many_communicators(case: Case) -> Found | None:
    """A rank takes part in so many communicators that start-up and memory suffer.

    Shown by: more than 64 of them on one rank. Each takes some hundred MiB at worst, and a set-up
    of seconds at scale. Do: use groups again, split lazily (ncclCommSplit), fewer axes.
    """
    by_rank: dict[tuple[str, int], int] = {}
    for log in case.evidence.nccl:
        for c in log.communicators:
            place = (log.file, c.cuda_device)
            by_rank[place] = by_rank.get(place, 0) + 1
    most = max(by_rank.values(), default=0)
    if most <= MANY_GROUPS:
        return None
    return Found(
        message=f"One process takes part in {most} NCCL communicators.",
        proofs=(of_ranks(f"{most} were set up in {_fullest(by_rank)}", ()),),
        lever=lever(
            case,
            "use process groups again, or split communicators lazily",
            changes={"workload.runtime.process_groups": MANY_GROUPS},
        ),
        takes_us={},
    )


def _fullest(by_rank: Mapping[tuple[str, int], int]) -> str:
    return max(by_rank, key=lambda place: by_rank[place])[0]


@cause(
    "COM927",
    "Settings hold NCCL back",
    kind=COMMUNICATION,
    source=_DOCS,
    needs=("nccl",),
    said_by=("COM921", "COM923"),
)
def limiting_settings(case: Case) -> Found | None:
    """Variables left over from debugging turn off the fast paths.

    Shown by: NCCL_P2P_DISABLE, NCCL_IB_DISABLE, NCCL_SHM_DISABLE, NCCL_LAUNCH_MODE=GROUP or an
    NCCL_ALGO or NCCL_PROTO for everything, in NCCL's log. Do: unset them and measure.
    """
    found = {
        name: value
        for log in case.evidence.nccl
        for name, value in log.settings.items()
        if _LIMITS.get(name, lambda _value: False)(value)
    }
    if not found:
        return None
    words = ", ".join(f"{name}={value}" for name, value in found.items())
    return Found(
        message=f"NCCL runs with {words}.",
        proofs=(Proof(text="set in the environment", events=named(list(found))),),
        lever=lever(case, f"unset {', '.join(found)}", command=f"unset {' '.join(found)}"),
        takes_us={},
        confidence="medium",
    )


def _is_on(value: str) -> bool:
    return value.strip() not in ("", "0")


def _is_simple_only(value: str) -> bool:
    return bool(value.strip()) and "," not in value and not value.startswith("^")


_LIMITS = {
    "NCCL_P2P_DISABLE": _is_on,
    "NCCL_IB_DISABLE": _is_on,
    "NCCL_SHM_DISABLE": _is_on,
    "NCCL_PROTO": _is_simple_only,
    "NCCL_ALGO": _is_simple_only,
}
