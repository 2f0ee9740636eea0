"""The collective kernels of all ranks in one table, and in which lane of equals each one runs.

A lane is a sequence that every member of a process group runs through in the same order: NCCL
demands that of the calls on one communicator. Sends and receives are lanes of the two ranks that
they join. Kernels that carry no message (old traces, graphs, batched sends) have the lane of their
stream, whose members nobody tells; `match.py` finds them by time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.diagnose.rank import Instances, Rank
    from meshwright.diagnose.trace.columns import Ints, Longs, Message

    Doubles = NDArray[np.float64]
    Bools = NDArray[np.bool_]

UNEVEN = ("alltoall", "all_to_all", "gather", "scatter", "send", "recv", "coalesced")
ROOTED = ("broadcast", "reduce", "gather", "scatter")  # some members may leave before others come
SENDS = ("send", "recv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A process group, a pair of ranks that exchange, or a stream without messages.

    `members` is empty where nobody tells them. Two groups of equal members are two lanes. A `loose`
    lane has sends that do not name the other side: only time can tell it.
    """

    group: str
    description: str = ""
    members: tuple[int, ...] = ()
    size: int = -1
    pair: tuple[int, int] | None = None  # sender, receiver
    stream: int = -1
    loose: bool = False

    @property
    def bare(self) -> bool:
        """Whether nobody tells who its members are."""
        return not self.group and not self.members and self.pair is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Kernel and message that rows share."""

    kernel: str
    message: Message | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """One row for each collective kernel, by rank (an index into `ranks`) and then by start.

    `token` is what members of a lane have in common in one call: operation, type and, where all
    ranks bring as much, size. `step` is an index into `steps`, the names of the steps of all ranks.
    """

    ranks: tuple[int, ...]
    first: Longs  # of each rank's rows; one more than ranks
    rank: Ints
    start_ns: Longs
    end_ns: Longs
    exposed_ns: Longs
    seq: Longs
    stream: Ints
    step: Ints
    lane: Ints
    token: Ints
    kind: Ints
    lanes: tuple[Lane, ...]
    kinds: tuple[Kind, ...]
    steps: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start_ns)


def rows_of(ranks: Sequence[Rank], numbers: Sequence[int]) -> Rows:
    """The table of ranks that have instances; `numbers` are their ranks in the job."""
    instances = [r.instances for r in ranks if r.instances is not None]
    lanes: dict[Lane, int] = {}
    tokens: dict[tuple[object, ...], int] = {}
    kinds: dict[Kind, int] = {}
    steps = _step_numbers(ranks)
    streams = _bare_streams(instances)
    columns = []
    for rank, number, own, bare in zip(ranks, numbers, instances, streams, strict=True):
        known = _members(rank)
        laid = [
            _numbered(own, i, number, known, world=rank.world_size or -1)
            for i in range(len(own.signatures))
        ]
        lane = np.array([lanes.setdefault(x[0], len(lanes)) for x in laid], np.int32)
        token = np.array([tokens.setdefault(x[1], len(tokens)) for x in laid], np.int32)
        kind = np.array([kinds.setdefault(x[2], len(kinds)) for x in laid], np.int32)
        order = np.lexsort((-own.end_ns, own.start_ns))
        lane_of = _with_streams(lane, own, bare, lanes)
        columns.append((own, order, lane_of, token, kind, _steps_of(rank, own, steps)))
    return _joined(columns, numbers, tuple(lanes), tuple(kinds), tuple(steps))


def _joined(
    columns: list[tuple[Instances, Longs, Ints, Ints, Ints, Ints]],
    numbers: Sequence[int],
    lanes: tuple[Lane, ...],
    kinds: tuple[Kind, ...],
    steps: tuple[str, ...],
) -> Rows:
    def whole(name: str) -> Longs:
        return np.concatenate([getattr(own, name)[order] for own, order, *_ in columns])

    counts = [len(order) for _, order, *_ in columns]
    return Rows(
        ranks=tuple(numbers),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        rank=np.repeat(np.arange(len(counts)), counts).astype(np.int32),
        start_ns=whole("start_ns"),
        end_ns=whole("end_ns"),
        exposed_ns=whole("exposed_ns"),
        seq=whole("seq"),
        stream=whole("stream").astype(np.int32),
        step=np.concatenate([step[order] for _, order, *_, step in columns]),
        lane=np.concatenate([lane[order] for _, order, lane, *_ in columns]),
        token=np.concatenate([t[o.signature[order]] for o, order, _, t, _, _ in columns]),
        kind=np.concatenate([k[o.signature[order]] for o, order, _, _, k, _ in columns]),
        lanes=lanes,
        kinds=kinds,
        steps=steps,
    )


def short(kernel: str) -> str:
    """The kernel's name without its arguments."""
    return kernel.replace("(anonymous namespace)::", "").partition("(")[0]


def _numbered(
    own: Instances, index: int, number: int, known: Mapping[str, tuple[int, ...]], *, world: int
) -> tuple[Lane, tuple[object, ...], Kind]:
    """Lane, token and kind of a signature."""
    message, kernel = own.messages[index], short(own.kernels[index])
    kind = Kind(kernel=kernel, message=message)
    if message is None:
        return Lane(group=""), ("kernel", kernel), kind
    members = known.get(message.group) or members_of(message, world=world)
    name, pair = message.collective.lower(), _pair(message, number, members)
    lane = Lane(
        group=message.group,
        description=message.description,
        members=members,
        size=message.group_size if message.group_size > 0 else len(members) or -1,
        pair=pair,
        loose=name in SENDS and pair is None,
    )
    if any(word in name for word in UNEVEN):
        token: tuple[object, ...] = ("" if name in SENDS else name, message.dtype)
    else:
        token = (name, message.dtype, message.in_elements, message.out_elements)
    return lane, token, kind


def _pair(message: Message, number: int, members: tuple[int, ...]) -> tuple[int, int] | None:
    """Sender and receiver: each kernel names the other side at most, a group of two leaves one."""
    name = message.collective.lower()
    other = message.target_rank if name == "send" else message.source_rank
    if other < 0 and len(members) == 2 and number in members:
        other = members[1 - members.index(number)]
    if other < 0 or name not in SENDS:
        return None
    return (number, other) if name == "send" else (other, number)


def members_of(message: Message, *, world: int) -> tuple[int, ...]:
    """The members as the message prints them; empty where it cuts them off."""
    found = tuple(int(n) for n in re.findall(r"\d+", message.ranks[:100_000]))
    if "..." not in message.ranks and len(found) == max(message.group_size, 1):
        return found
    return tuple(range(world)) if 1 < message.group_size == world else ()


def _members(rank: Rank) -> dict[str, tuple[int, ...]]:
    return {
        g.name: g.ranks or tuple(range(g.size if g.size == rank.world_size else 0))
        for g in rank.meta.groups
    }


def _bare_streams(instances: Sequence[Instances]) -> list[dict[int, int]]:
    """For each rank a number to each stream of kernels without messages, alike on all ranks.

    Ranks name their streams alike, or at least have as many; otherwise streams tell nothing.
    """
    found: list[list[int]] = []
    for own in instances:
        without = np.array([m is None for m in own.messages], bool)
        has = without[own.signature] if len(own.signature) else np.zeros(0, bool)
        found.append([int(s) for s in np.unique(own.stream[has])])
    with_any = [streams for streams in found if streams]
    if len({len(streams) for streams in with_any}) > 1:
        return [dict.fromkeys(streams, 0) for streams in found]
    return [{stream: i for i, stream in enumerate(streams)} for streams in found]


def _with_streams(
    lane: Ints, own: Instances, streams: Mapping[int, int], lanes: dict[Lane, int]
) -> Ints:
    """The lane of each row: that of its signature, or of its stream."""
    rows: Ints = lane[own.signature]
    bare = lanes.get(Lane(group=""))
    if bare is None:
        return rows
    for stream, number in streams.items():
        at = (rows == bare) & (own.stream == stream)
        if at.any():
            rows[at] = lanes.setdefault(Lane(group="", stream=number), len(lanes))
    return rows


def _step_numbers(ranks: Sequence[Rank]) -> dict[str, int]:
    """A number to each name of a step, in the order of the rank that has most."""
    numbers: dict[str, int] = {}
    for rank in sorted(ranks, key=lambda r: -len(r.device_steps)):
        for step in rank.device_steps:
            numbers.setdefault(step.name, len(numbers))
    return numbers


def _steps_of(rank: Rank, own: Instances, numbers: Mapping[str, int]) -> Ints:
    named = np.array([numbers[s.name] for s in rank.device_steps] + [-1], np.int32)
    inside = np.clip(own.step, -1, len(named) - 2)
    return named[inside]  # -1 takes the last, which is -1
