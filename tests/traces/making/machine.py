"""One rank's host and device as they run, and how ranks meet in collectives. Nanoseconds."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from making.mesh import ProcessGroup, groups_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from making.spec import Spec

    Running = Generator["Meeting", None, None]

COMPUTE = 7
COPIES = 11
MAIN, AUTOGRAD = 0, 1


@dataclass(slots=True)
class Op:
    """An operator, an annotation or a Python frame of the host."""

    name: str
    cat: str
    thread: int
    start: int
    end: int
    external: int
    args: dict[str, Any]


@dataclass(slots=True)
class Call:
    """A call of the runtime; `launches` says that a device event follows from it."""

    name: str
    thread: int
    start: int
    end: int
    correlation: int
    external: int
    launches: bool
    kernel: str = ""


@dataclass(slots=True)
class Work:
    """A device event."""

    name: str
    cat: str
    stream: int
    start: int
    end: int
    correlation: int
    external: int
    args: dict[str, Any]
    graphed: bool = False


@dataclass(slots=True)
class Meeting:
    """A collective: it ends for all when the last has come and its bytes are over."""

    group: ProcessGroup
    members: int
    transfer: int
    arrived: dict[int, int] = field(default_factory=dict)
    works: list[Work] = field(default_factory=list)
    end: int = -1
    waiting: list[Running] = field(default_factory=list)

    def arrive(self, rank: int, work: Work) -> None:
        self.arrived[rank] = work.start
        self.works.append(work)
        if len(self.arrived) == self.members:
            self.end = max(self.arrived.values()) + self.transfer
            for each in self.works:
                each.end = self.end


class Machine:
    """One rank while it runs: `now` is its host's clock."""

    def __init__(self, spec: Spec, rank: int, meetings: dict[Any, Meeting]) -> None:
        self.spec, self.rank, self.meetings = spec, rank, meetings
        self.groups = groups_of(spec, rank)
        self.random = random.Random(spec.seed * 7919 + rank)
        self.now = 0
        self.thread = MAIN
        self.free: dict[int, int] = {COMPUTE: 0}
        self.last: dict[int, Meeting] = {}  # of a stream
        self.flying: list[Meeting] = []
        self.counts: dict[Any, int] = {}
        self.ops: list[Op] = []
        self.externals: list[int] = []  # of open operators; annotations launch nothing
        self.calls: list[Call] = []
        self.works: list[Work] = []
        self.memory: list[tuple[int, int]] = []
        self.correlation = 4000
        self._graph_ready = 0
        self.graph = 0
        self.step = 0
        self.compute_factor = 1.0
        self.host_factor = 1.0

    # the host

    def pause(self, us: float) -> None:
        self.now += int(us * 1000 * self.host_factor)

    def op(self, name: str, cat: str = "cpu_op", **args: Any) -> Scope:
        return Scope(self, name, cat, args)

    def call(self, name: str, us: float, *, launches: bool = False, kernel: str = "") -> Call:
        start = self.now
        self.pause(us)
        self.correlation += 1
        external = self.externals[-1] if self.externals else 0
        made = Call(
            name, self.thread, start, self.now, self.correlation, external, launches, kernel
        )
        self.calls.append(made)
        return made

    # the device

    def kernel(self, name: str, us: float, *, stream: int = COMPUTE) -> Work:
        """A kernel: it begins when its launch has come and its stream is free."""
        factor = self.compute_factor * max(0.5, self.random.gauss(1.0, self.spec.jitter))
        ready, correlation, external, graphed = self._launch(name)
        start = max(self.free.get(stream, 0), ready)
        if self.spec.contention != 1.0 and self._contended(start):
            factor *= self.spec.contention
        return self._work(
            name, "kernel", stream, start, us * factor, correlation, external, graphed
        )

    def copy(self, name: str, us: float, size: int, *, blocks: bool) -> Work:
        call = self.call(_rename("cudaMemcpyAsync", self.spec), self.spec.launch_us, launches=True)
        start = max(self.free[COMPUTE], call.start + 3000)
        work = self._work(
            name, "gpu_memcpy", COMPUTE, start, us, call.correlation, call.external, False
        )
        work.args["bytes"] = size
        if blocks:
            self.now = call.end = max(self.now, work.end + 2000)
        return work

    def memset(self, us: float, size: int) -> None:
        call = self.call(_rename("cudaMemsetAsync", self.spec), self.spec.launch_us, launches=True)
        start = max(self.free[COMPUTE], call.end + 1000)
        work = self._work(
            "Memset (Device)",
            "gpu_memset",
            COMPUTE,
            start,
            us,
            call.correlation,
            call.external,
            False,
        )
        work.args["bytes"] = size

    def synchronize(self, name: str) -> Running:
        """The host waits for all streams (device) or for that of compute (stream)."""
        if "Device" in name:
            for meeting in list(self.last.values()):
                yield from until(meeting)
                self.free[meeting.works[0].stream] = meeting.end
        start = self.now
        self.call(_rename(name, self.spec), 1.5)
        ends = self.free.values() if "Device" in name else [self.free[COMPUTE]]
        self.now = self.calls[-1].end = max(self.now, max(ends) + 2000)
        assert self.now >= start

    def _launch(self, name: str) -> tuple[int, int, int, bool]:
        if self.graph < 0 or (self.graph == 0 and not self.spec.cuda_graphs):
            call = self.call(_launcher(name, self.spec), self.spec.launch_us, launches=True)
            call.kernel = name
            return call.end + 1500, call.correlation, call.external, False
        if self.graph == 0:
            call = self.call("cudaGraphLaunch", 12.0, launches=True)
            self.graph = call.correlation
            self._graph_ready = call.end + 3000
        return self._graph_ready, self.graph, 0, True

    def _contended(self, start: int) -> bool:
        return any(m.end < 0 or m.end > start for m in self.flying)

    def _work(self, name: str, cat: str, stream: int, start: int, us: float, *made: Any) -> Work:
        correlation, external, graphed = made
        work = Work(
            name,
            cat,
            stream,
            start,
            start + max(1, int(us * 1000)),
            correlation,
            external,
            {},
            graphed,
        )
        self.works.append(work)
        self.free[stream] = work.end
        return work

    # collectives

    def enqueue(
        self,
        name: str,
        *,
        group: ProcessGroup,
        key: Any,
        members: int,
        transfer_us: float,
        stream: int,
        args: dict[str, Any],
    ) -> Running:
        """Puts a collective on its stream behind what compute has by now."""
        before = self.last.get(stream)
        if before is not None:
            yield from until(before)
            self.free[stream] = max(self.free.get(stream, 0), before.end)
        call = self.call(_launcher(name, self.spec), self.spec.launch_us, launches=True)
        call.kernel = name
        start = max(self.free[COMPUTE], self.free.get(stream, 0), call.end + 2000)
        work = Work(name, "kernel", stream, start, -1, call.correlation, call.external, args)
        self.works.append(work)
        number = self.counts[key] = self.counts.get(key, -1) + 1
        if "Process Group Name" in args and self.spec.era == "2026":
            args["Seq"] = number
        meeting = self.meetings.get((key, number))
        if meeting is None:
            meeting = self.meetings[key, number] = Meeting(group, members, int(transfer_us * 1000))
        meeting.arrive(self.rank, work)
        self.last[stream] = meeting
        self.flying.append(meeting)
        if stream == COMPUTE:
            yield from until(meeting)
            self.free[COMPUTE] = meeting.end

    def wait(self, meeting: Meeting | None) -> Running:
        """Compute waits for a collective: an event of its stream."""
        if meeting is None:
            return
        self.call(_rename("cudaStreamWaitEvent", self.spec), 0.8)
        yield from until(meeting)
        self.free[COMPUTE] = max(self.free[COMPUTE], meeting.end)
        if meeting in self.flying:
            self.flying.remove(meeting)


class Scope:
    """An operator that is open while its block runs; within a CUDA graph the host does nothing."""

    __slots__ = ("args", "cat", "machine", "name", "op")

    def __init__(self, machine: Machine, name: str, cat: str, args: dict[str, Any]) -> None:
        self.machine, self.name, self.cat, self.args = machine, name, cat, args
        self.op: Op | None = None

    def __enter__(self) -> Op | None:
        m = self.machine
        if m.graph > 0 and self.cat == "cpu_op":
            return None
        self.op = Op(self.name, self.cat, m.thread, m.now, -1, len(m.ops) + 1, self.args)
        m.ops.append(self.op)
        if self.cat == "cpu_op":
            m.externals.append(self.op.external)
        m.pause(m.spec.operator_us + m.spec.profiler_us)
        return self.op

    def __exit__(self, *_: object) -> None:
        if self.op is not None:
            m = self.machine
            m.pause(m.spec.operator_us / 4)
            self.op.end = m.now
            if self.cat == "cpu_op":
                m.externals.pop()


def until(meeting: Meeting) -> Running:
    """Runs others until all have come to a meeting."""
    while meeting.end < 0:
        yield meeting


def run_all(programs: Iterable[Running]) -> None:
    """Plays the ranks against each other to their end."""
    ready: deque[Running] = deque(programs)
    unfinished = len(ready)
    blocked: list[Meeting] = []
    while ready:
        program = ready.popleft()
        try:
            meeting = next(program)
        except StopIteration:
            unfinished -= 1
        else:
            meeting.waiting.append(program)
            blocked.append(meeting)
        if not ready or len(ready) < 2:
            for meeting in [b for b in blocked if b.end >= 0]:
                ready.extend(meeting.waiting)
                meeting.waiting = []
                blocked.remove(meeting)
    if unfinished:
        raise RuntimeError(f"{unfinished} ranks wait for each other")


def _rename(call: str, spec: Spec) -> str:
    return call.replace("cuda", "hip", 1) if spec.rocm else call


def _launcher(kernel: str, spec: Spec) -> str:
    if spec.rocm:
        if kernel.startswith("nccl"):
            return "hipExtLaunchKernel"
        return "hipExtModuleLaunchKernel" if kernel.startswith("Cijk") else "hipLaunchKernel"
    if kernel.startswith("triton_"):
        return "cuLaunchKernel"
    return "cudaLaunchKernelExC" if kernel.startswith(("nvjet", "nccl")) else "cudaLaunchKernel"
