"""What an NCCL log has said so far: communicators, links, settings, warnings. Memory is bounded."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.logs.noun import Communicator, NcclLog
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.logs.lines import Said

MOST = {"communicators": 1 << 16, "warnings": 256, "settings": 1024, "names": 4096}
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
TEXT = 400  # characters of a warning that are kept
COLLECTIVES = 64  # kinds of calls of a communicator
NO_GDR = "without GPU-direct RDMA"
APART = ("Bootstrap", NO_GDR)  # lists of devices that say nothing of the network
VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")


def name_of_algorithm(algorithm: str, protocol: str) -> str:
    """ "Ring LL128" of ("RING", "LL128") or of NCCL's own numbers ("1", "1")."""
    return f"{_named(algorithm, ALGORITHMS)} {_named(protocol, PROTOCOLS)}"


def _named(text: str, names: Sequence[str]) -> str:
    if text.isdecimal():
        return names[int(text)] if len(text) < 3 and int(text) < len(names) else text
    plain = text.replace("_", "").lower()
    return next((name for name in names if name.lower() == plain), text)


class _Comm:
    """A communicator while its lines come in."""

    def __init__(self, ident: str, rank: int, nranks: int, said: Said) -> None:
        self.ident, self.rank, self.nranks = ident, rank, nranks
        self.host, self.pid, self.device = said.process
        self.pairs: dict[str, str] = {}
        self.fields: dict[str, Any] = {}
        self.seen_channels: set[int] = set()
        self.transports: Counter[str] = Counter()
        self.algorithms: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.call_bytes: Counter[str] = Counter()

    def takes(self, other: _Comm) -> None:
        """Takes over what was said before its name was known."""
        self.transports += other.transports
        self.algorithms += other.algorithms
        self.calls += other.calls
        self.call_bytes += other.call_bytes
        self.seen_channels |= other.seen_channels

    def noun(self) -> Communicator:
        device = self.pairs.get("cudaDev", "")
        fields = {"channels": len(self.seen_channels)} | self.fields
        return Communicator(
            ident=self.ident,
            rank=self.rank,
            nranks=self.nranks,
            cuda_device=int(device) if device.isdecimal() else self.device,
            bus=self.pairs.get("busId", ""),
            transports=dict(self.transports.most_common()),
            algorithms=dict(self.algorithms.most_common()),
            calls=dict(self.calls.most_common()),
            call_bytes=dict(self.call_bytes.most_common()),
            host=self.host,
            pid=self.pid,
            group=self.pairs.get("commId", ""),
            nodes=_count(self.pairs.get("nNodes")),
            local_ranks=_count(self.pairs.get("localRanks")),
            **fields,
        )


class Gathered:
    """Takes what lines say, one after another, and makes the noun of it."""

    def __init__(self) -> None:
        self.comms: dict[tuple[str, int, str], _Comm] = {}
        self.current: dict[tuple[str, int, int], _Comm] = {}
        self.hosts: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.library = "NCCL"
        self.settings: dict[str, Counter[str]] = {}
        self.warnings: dict[str, tuple[str, int]] = {}
        self.timeouts: dict[str, str] = {}
        self.networks: dict[tuple[str, int, int], str] = {}
        self.devices: dict[str, dict[str, None]] = {}
        self.transports: Counter[str] = Counter()
        self.paths: Counter[str] = Counter()
        self.heads: dict[tuple[str, int, int], dict[str, list[str]]] = {}
        self.tuning: dict[str, tuple[float, float]] = {}
        self.ib_missing = False
        self.connect_retries = 0
        self.over: Counter[str] = Counter()  # what did not fit

    def speaks(self, said: Said) -> Said:
        """Notes the host of a message; mends it where a torn word stands before the name."""
        host = said.host
        if not host:
            return said
        if host not in self.hosts:
            ends = (host[n:] for n in range(1, len(host)))
            known = next((end for end in ends if end in self.hosts), host)
            said, host = said._replace(host=known), known
        if self.fits("names", self.hosts, host):
            self.hosts[host] += 1
        return said

    def fits(self, what: str, kept: Mapping[Any, Any], key: Any) -> bool:
        """Whether there is room for one more; if not, it is counted."""
        if key in kept or len(kept) < MOST[what]:
            return True
        self.over[what] += 1
        return False

    def version(self, library: str, number: str) -> None:
        """Notes a version; RCCL names itself in its own."""
        if library == "RCCL":
            self.library = library
        if self.fits("names", self.versions, number):
            self.versions[number] += 1

    def communicator(
        self,
        said: Said,
        *,
        ident: str,
        rank: int,
        nranks: int,
        pairs: Mapping[str, str],
        complete: bool,
    ) -> None:
        """Notes a communicator, which from now on is the one its process speaks of."""
        key = (said.host, said.pid, ident)
        if not self.fits("communicators", self.comms, key):
            return
        comm = self.comms.get(key)
        if comm is None or (comm.rank, comm.nranks) != (rank, nranks):
            comm = self.comms[key] = _Comm(ident, rank, nranks, said)
        comm.pairs |= pairs
        if complete:
            comm.fields["complete"] = True
        before = self.current.get(said.process)
        if before is not None and not before.ident:
            comm.takes(before)
            self.comms.pop((said.host, said.pid, ""), None)
        self.current[said.process] = comm

    def speaker(self, said: Said) -> _Comm:
        """The communicator that a process set up last; a nameless one before any is known."""
        comm = self.current.get(said.process)
        if comm is None:
            comm = self.current[said.process] = _Comm("", -1, 0, said)
            if self.fits("communicators", self.comms, (said.host, said.pid, "")):
                self.comms[said.host, said.pid, ""] = comm
        return comm

    def link(self, said: Said, *, channel: int, via: str, ident: str | None) -> None:
        """Notes a connection and over what it goes."""
        if self.fits("names", self.transports, via):
            self.transports[via] += 1
        comm = self.comms.get((said.host, said.pid, ident)) if ident else None
        comm = comm or self.speaker(said)
        comm.transports[via] += 1
        comm.seen_channels.add(channel)

    def changes(self, said: Said, **fields: Any) -> None:
        """Notes something of the communicator that the process set up last."""
        comm = self.current.get(said.process)
        if comm is not None:
            comm.fields |= fields

    def timing(self, said: Said, *, rank: int, nranks: int, seconds: float) -> None:
        """Notes how long setting up took."""
        comm = self.current.get(said.process)
        if comm is not None and (comm.rank, comm.nranks) == (rank, nranks):
            comm.fields["init_s"] = seconds

    def choice(self, said: Said, name: str) -> None:
        """Notes which algorithm and protocol NCCL chose for a call."""
        self.speaker(said).algorithms[name] += 1

    def call(self, said: Said, collective: str, size: int, *, ident: str) -> None:
        """Notes a call of a collective, and the bytes of the rank's buffer."""
        comm = self.comms.get((said.host, said.pid, ident)) or self.speaker(said)
        if collective in comm.calls or len(comm.calls) < COLLECTIVES:
            comm.calls[collective] += 1
            comm.call_bytes[collective] += size

    def path(self, kind: str) -> None:
        """Notes over what NCCL's search of the topology goes, in a node and out of it."""
        if self.fits("names", self.paths, kind):
            self.paths[kind] += 1

    def setting(self, name: str, value: str) -> None:
        """Notes an environment variable."""
        if self.fits("settings", self.settings, name):
            values = self.settings.setdefault(name, Counter())
            if self.fits("names", values, value):
                values[value[:TEXT]] += 1

    def warning(self, text: str) -> None:
        """Notes a warning; those that differ in numbers only count as one."""
        key = VARYING.sub("#", text[:TEXT])
        if self.fits("warnings", self.warnings, key):
            first, count = self.warnings.get(key, (text[:TEXT], 0))
            self.warnings[key] = (first, count + 1)

    def timeout(self, text: str) -> None:
        """Notes a collective that timed out."""
        if self.fits("warnings", self.timeouts, text):
            self.timeouts[text] = text

    def network(self, said: Said, name: str) -> None:
        """Notes what a process uses between nodes."""
        if self.fits("communicators", self.networks, said.process):
            self.networks[said.process] = name

    def interfaces(self, of: str, names: Sequence[str]) -> None:
        """Notes devices or interfaces of "Bootstrap", "NET/IB", "NET/Socket"."""
        if self.fits("names", self.devices, of):
            kept = self.devices.setdefault(of, {})
            for name in names:
                if self.fits("names", kept, name):
                    kept[name] = None

    def table_head(self, said: Said, which: str, cells: list[str]) -> None:
        """Notes the head of NCCL's table of algorithms and protocols."""
        if self.fits("names", self.heads, said.process):
            self.heads.setdefault(said.process, {})[which] = cells

    def table_row(self, said: Said, collective: str, pairs: list[tuple[float, float]]) -> None:
        """Notes a row of it: latency and bandwidth of each algorithm and protocol."""
        heads = self.heads.get(said.process, {})
        algorithms, protocols = heads.get("Algorithm", []), heads.get("Protocol", [])
        each = len(PROTOCOLS)
        if len(protocols) != len(pairs) or len(algorithms) * each < len(pairs):
            return
        for n, (protocol, pair) in enumerate(zip(protocols, pairs, strict=True)):
            name = f"{collective} {name_of_algorithm(algorithms[n // each], protocol)}"
            if pair[1] > 0 and self.fits("settings", self.tuning, name):
                self.tuning.setdefault(name, pair)

    def log(self, file: str, left: tuple[Left, ...]) -> NcclLog:
        """The noun of all that was said."""
        comms = tuple(comm.noun() for comm in self.comms.values())
        largest = max((c.nranks for c in comms), default=0)
        networks = Counter(_plain(name) for name in self.networks.values())
        network = networks.most_common(1)[0][0] if networks else _by_links(self.transports)
        versions = tuple(sorted(self.versions, key=lambda v: -self.versions[v]))
        return NcclLog(
            file=file,
            version=versions[0] if versions else "",
            versions=versions,
            library=self.library,
            hosts=self.whole_hosts(),
            ranks=tuple(sorted({c.rank for c in comms if c.nranks == largest and c.rank >= 0})),
            communicators=comms,
            network=network,
            networks=dict(networks.most_common()),
            interfaces=self.used(network),
            bootstrap=tuple(self.devices.get("Bootstrap", ())),
            warnings=tuple(first for first, _ in self.warnings.values()),
            warning_counts=dict(self.warnings.values()),
            settings={name: v.most_common(1)[0][0] for name, v in self.settings.items()},
            mixed_settings=tuple(name for name, v in self.settings.items() if len(v) > 1),
            timeouts=tuple(self.timeouts),
            connect_retries=self.connect_retries,
            ib_missing=self.ib_missing and network != "IB",
            transports=dict(self.transports.most_common()),
            paths=dict(self.paths.most_common()),
            gdr_disabled=tuple(self.devices.get(NO_GDR, ())),
            tuning=self.tuning,
            left=(*left, *_lost(self.over)),
        )

    def whole_hosts(self) -> tuple[str, ...]:
        """The hosts, without those that are another one with a torn word before it."""
        return tuple(host for host in self.hosts if not self.is_torn(host))

    def is_torn(self, host: str) -> bool:
        """Whether a host's name ends with that of one that is seen more often."""
        ends = (host[n:] for n in range(1, len(host)))
        return any(self.hosts.get(end, 0) > self.hosts[host] for end in ends)

    def used(self, network: str) -> tuple[str, ...]:
        """Devices of the network that is used; of all of them where that is not known."""
        own = [of for of in self.devices if of not in APART and network and network in of]
        every = [of for of in self.devices if of not in APART]
        return tuple(dict.fromkeys(name for of in own or every for name in self.devices[of]))


def _plain(network: str) -> str:
    """ "IB" of "IBext_v8", which is InfiniBand through a plugin."""
    return "IB" if network.startswith("IB") else network


def _by_links(transports: Counter[str]) -> str:
    """The network of most links between nodes, for logs that do not name it; "" without any."""
    nets: Counter[str] = Counter()
    for via, count in transports.items():
        kind, _, rest = via.partition("/")
        if kind == "NET":
            nets[_plain(rest.partition("/")[0])] += count
    return nets.most_common(1)[0][0] if nets else ""


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None


def _lost(over: Mapping[str, int]) -> tuple[Left, ...]:
    return tuple(
        Left(what=f"further {what}", count=count, time_us=0.0, reason=f"only {MOST[what]} are kept")
        for what, count in over.items()
    )
