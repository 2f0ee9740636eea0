"""Jobs of many ranks, played out: who comes last to a collective is known because it was planned.

Every rank has a list of what it does one after the other, on its own clock; a collective begins on
a rank when the rank gets there and ends on all members when the last came and `transfer_us` passed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from meshwright.diagnose.rank import Attribution, Instances, Rank, Step, Unions
from meshwright.diagnose.trace.columns import Group, Message, Meta

SIZE = 1_000_000
PARTS = {
    "compute": "compute",
    "loader": "idle_dataloader",
    "host": "idle_host_late_launch",
    "copy": "exposed_memory",
}


@dataclass
class Op:
    """Something that takes time on one rank, or a collective of a group."""

    kind: str
    us: float = 0.0  # of a collective: the transfer
    group: str = ""
    collective: str = "allreduce"
    elements: int = SIZE
    peer: int = -1
    dtype: str = "BFloat16"


def compute(us):
    """Computation."""
    return Op("compute", us)


def meet(group, us=100.0, *, elements=SIZE, collective="allreduce"):
    """A collective."""
    return Op("meet", us, group, collective, elements)


@dataclass
class Job:
    """Groups by name, and what each rank does in each step."""

    world: int
    groups: dict[str, tuple[int, ...]]
    descriptions: dict[str, str] = field(default_factory=dict)
    steps: list[list[list[Op]]] = field(default_factory=list)  # step, rank, operations
    shift_us: dict[int, float] = field(default_factory=dict)  # of each rank's clock
    hosts: dict[int, str] = field(default_factory=dict)
    messages: bool = True
    numbers: bool = False  # Seq
    jitter_us: float = 0.0  # by which members leave one collective apart
    lost: set[tuple[int, int]] = field(default_factory=set)  # (rank, how-manieth collective)
    gpu: str = "NVIDIA H100 80GB HBM3"
    start_us: float = 1_700_000_000_000_000.0


def play(job: Job) -> list[Rank]:
    """The traces of the job, as ranks."""
    rng = np.random.default_rng(7)
    now = np.full(job.world, job.start_us)
    found = [_Kept() for _ in range(job.world)]
    for number, step in enumerate(job.steps):
        begun = now.copy()
        _step(job, step, now, found, number, rng)
        for r, kept in enumerate(found):
            kept.step(number, begun[r], now[r], job.shift_us.get(r, 0.0))
    return [_rank(job, r, kept) for r, kept in enumerate(found)]


class _Kept:
    def __init__(self):
        self.rows, self.steps, self.attributions = [], [], []
        self.parts = defaultdict(float)

    def step(self, number, start, end, shift):
        name = f"ProfilerStep#{number}"
        self.steps.append(Step(name=name, start_us=start + shift, dur_us=end - start))
        parts, length = dict(self.parts), end - start
        self.attributions.append(
            Attribution(
                window=name,
                window_us=length,
                parts_us=parts,
                parts_pct={k: 100 * v / length for k, v in parts.items()},
                overlapped_comm_us=0.0,
            )
        )
        self.parts.clear()


def _step(job, step, now, found, number, rng):
    """Goes on with every rank that waits for nobody, until all are at the end."""
    at = [0] * job.world
    arrived = defaultdict(dict)  # (group, how-manieth) -> rank -> start
    calls = defaultdict(int)
    while any(at[r] < len(step[r]) for r in range(job.world)):
        moved = False
        for r in range(job.world):
            while at[r] < len(step[r]):
                op = step[r][at[r]]
                if op.kind != "meet":
                    now[r] += op.us
                    found[r].parts[PARTS[op.kind]] += op.us
                    at[r], moved = at[r] + 1, True
                    continue
                key = (op.group, calls[r, op.group])
                if r not in arrived[key]:
                    arrived[key][r], moved = now[r], True
                if len(arrived[key]) < len(job.groups[op.group]):
                    break
                end = max(arrived[key].values()) + op.us + rng.uniform(0, 1) * job.jitter_us
                found[r].rows.append((op, arrived[key][r], end, number, key[1]))
                found[r].parts["exposed_comm"] += end - now[r]
                now[r], calls[r, op.group] = end, calls[r, op.group] + 1
                at[r], moved = at[r] + 1, True
        if not moved:
            raise AssertionError("the job hangs")


def _rank(job, r, kept):
    shift = job.shift_us.get(r, 0.0)
    rows = [row for i, row in enumerate(kept.rows) if (r, i) not in job.lost]
    signatures = {}
    numbers = [signatures.setdefault(_signature(job, op), len(signatures)) for op, *_ in rows]
    streams = {name: 20 + i for i, name in enumerate(_mine(job, r))}
    ns = lambda values: np.rint(np.array(values, float) * 1000 - job.start_us * 1000)  # noqa: E731
    base = int(job.start_us) * 1000
    start = ns([row[1] + shift for row in rows]).astype(np.int64) + base
    end = ns([row[2] + shift for row in rows]).astype(np.int64) + base
    step = float(np.median([s.dur_us for s in kept.steps]))
    work = float(np.mean([a.parts_us.get("compute", 0.0) for a in kept.attributions]))
    return Rank(
        file=f"rank{r}.json",
        file_bytes=1,
        json_bytes=1,
        events=len(rows),
        device_events=len(rows),
        bad_events=0,
        meta=Meta(
            rank=r,
            world_size=job.world,
            gpu=job.gpu,
            host=job.hosts.get(r, ""),
            groups=tuple(
                Group(
                    name=g, description=job.descriptions.get(g, "undefined"), ranks=m, size=len(m)
                )
                for g, m in job.groups.items()
            )
            if job.messages
            else (),
        ),
        left=(),
        gpu=job.gpu,
        rank=r,
        world_size=job.world,
        backend="nccl",
        nccl_version="2.28",
        computes_on="device",
        device_steps=tuple(kept.steps),
        device_step_time_us_median=step,
        step_time_us_median=step,
        step_window=_window(kept, work),
        step_attributions=tuple(kept.attributions),
        instances=Instances(
            signatures=tuple(map(str, signatures)),
            kernels=tuple(s[0] for s in signatures),
            messages=tuple(s[1] for s in signatures),
            signature=np.array(numbers, np.int32),
            start_ns=start,
            end_ns=end,
            exposed_ns=end - start,
            seq=np.array([s * 10_000 + n if job.numbers else -1 for *_, s, n in rows], np.int64),
            stream=np.array([streams[op.group] for op, *_ in rows], np.int32),
            step=np.array([row[3] for row in rows], np.int32),
        ),
    )


def _mine(job, r):
    return [name for name, members in job.groups.items() if r in members]


def _window(kept, work):
    total = sum(s.dur_us for s in kept.steps)
    comm = sum(a.parts_us.get("exposed_comm", 0.0) for a in kept.attributions)
    steps = len(kept.steps)
    return Unions(
        window_us=total,
        compute_us=work * steps,
        comm_us=comm,
        memory_us=0.0,
        overlap_comm_compute_us=0.0,
        exposed_comm_us=comm,
        exposed_memory_us=0.0,
        busy_us=work * steps + comm,
        idle_us=total - work * steps - comm,
        overlap_pct_of_comm=None,
        compute_pct=100 * work * steps / total,
        exposed_comm_pct=100 * comm / total,
        exposed_memory_pct=0.0,
        idle_pct=0.0,
        n_steps=steps,
    )


def _signature(job, op):
    words = {"allreduce": "AllReduce", "_allgather_base": "AllGather", "send": "SendRecv"}
    kernel = f"ncclDevKernel_{words.get(op.collective, 'SendRecv')}_RING_LL(ncclDevKernelArgs)"
    if not job.messages:
        return kernel, None
    members = job.groups[op.group]
    shown = members if len(members) <= 30 else members[:30]
    text = "[" + ", ".join(map(str, shown)) + (", ...]" if len(members) > 30 else "]")
    message = Message(
        collective=op.collective,
        group=op.group,
        description=job.descriptions.get(op.group, "undefined"),
        ranks=text,
        group_size=len(members),
        dtype=op.dtype,
        in_elements=op.elements,
        out_elements=op.elements * (len(members) if "gather" in op.collective else 1),
    )
    return kernel, message


def grid(world, sizes):
    """Groups of each axis, the first named fastest: {"tp": [(0, 1), ...], ...}."""
    ranks = np.arange(world).reshape([size for _, size in reversed(sizes)])
    found = {}
    for place, (name, _) in enumerate(sizes):
        moved = np.moveaxis(ranks, len(sizes) - 1 - place, -1)
        found[name] = [tuple(row.tolist()) for row in moved.reshape(-1, moved.shape[-1])]
    return found


def named(groups):
    """Names and members of those groups: {"tp0": (0, 1), ...}."""
    return {f"{a}{i}": m for a, rows in groups.items() for i, m in enumerate(rows)}


def group_of(groups, axis, rank):
    """The name of a rank's group along an axis."""
    return next(f"{axis}{i}" for i, m in enumerate(groups[axis]) if rank in m)
