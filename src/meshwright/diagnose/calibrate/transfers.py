"""Collectives that say how fast a link is: nobody waited in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.diagnose.across.bus import kind_of, payload_bytes
from meshwright.diagnose.across.join import matched_rows
from meshwright.diagnose.calibrate.noun import Transfer
from meshwright.diagnose.ranks import hosts_of, numbers_of
from meshwright.diagnose.trace.columns import Left, Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.across.table import Lane, Rows
    from meshwright.diagnose.across.waits import Waits
    from meshwright.diagnose.rank import Rank

FEWEST = 10
MOST_SKEW = 0.1  # of the transfer, by which ranks may come apart
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")


def transfers_of(ranks: Sequence[Rank]) -> tuple[tuple[Transfer, ...], tuple[Left, ...]]:
    """The transfers of all groups whose members are all in the traces, and what was refused.

    An instance counts when its ranks came within a tenth of its transfer, a size when ten do.
    """
    told = matched_rows(ranks)
    if told is None:
        return (), ()
    rows, waits, _ = told
    hosts = hosts_of(numbers_of(ranks), ranks)
    sized = [_sized(k.message) for k in rows.kinds]
    has = np.array([s is not None for s in sized], bool)
    complete = waits.complete & has[waits.kind]
    even = complete & (waits.start_skew_ns <= MOST_SKEW * waits.transfer_ns)
    found = _cells(rows, waits, even, sized, hosts, tuple(r.file for r in ranks))
    used = sum(t.points for t in found)
    refused = int(np.count_nonzero(complete)) - used
    left = []
    if refused:
        lost = float(waits.transfer_ns[complete].sum()) / 1000.0
        reason = (
            f"their ranks came more than {MOST_SKEW:.0%} of the transfer apart, or fewer than "
            f"{FEWEST} of their size came together"
        )
        what = "collectives that do not calibrate a link"
        left.append(Left(what=what, count=refused, time_us=lost, reason=reason))
    return tuple(found), tuple(left)


def _sized(message: Message | None) -> tuple[str, int] | None:
    """Kind and bytes of a collective that the cost model knows."""
    if message is None:
        return None
    kind, moved = kind_of(message), payload_bytes(message)
    kind = "send" if kind == "recv" else kind
    return (kind, moved) if kind in KINDS and moved else None


def _cells(
    rows: Rows,
    waits: Waits,
    even: np.ndarray[tuple[int], np.dtype[np.bool_]],
    sized: Sequence[tuple[str, int] | None],
    hosts: Mapping[int, str],
    sources: tuple[str, ...],
) -> list[Transfer]:
    """One transfer for each kind, size of group, nodes and bytes."""
    times: dict[tuple[str, int, int | None, int], list[int]] = {}
    at = np.flatnonzero(even)
    keys = waits.lane[at].astype(np.int64) * len(rows.kinds) + waits.kind[at]
    for key in np.unique(keys).tolist():
        lane, kind = divmod(key, len(rows.kinds))
        told = sized[kind]
        if told is not None:
            members = _members(rows.lanes[lane])
            cell = (told[0], len(members), _touched(members, hosts), told[1])
            times.setdefault(cell, []).extend(waits.transfer_ns[at[keys == key]].tolist())
    return [
        _transfer(cell, np.array(ns), sources) for cell, ns in times.items() if len(ns) >= FEWEST
    ]


def _members(lane: Lane) -> tuple[int, ...]:
    return lane.pair or lane.members or tuple(range(lane.size))


def _touched(members: Sequence[int], hosts: Mapping[int, str]) -> int | None:
    named = {hosts.get(m, "") for m in members}
    return None if "" in named else len(named)


def _transfer(
    cell: tuple[str, int, int | None, int],
    ns: np.ndarray[tuple[int], np.dtype[np.int64]],
    sources: tuple[str, ...],
) -> Transfer:
    low, middle, high = np.percentile(ns, [10, 50, 90]).tolist()
    spread = (high - low) / (2 * middle) if middle else 0.0
    kind, size, nodes, moved = cell
    return Transfer(
        kind=kind,
        size=size,
        nodes=nodes,
        bytes=float(moved),
        seconds=middle * 1e-9,
        points=len(ns),
        spread=spread,
        confidence="high" if len(ns) >= 3 * FEWEST and spread < 0.2 else "medium",
        sources=sources,
    )


def transfers_of_one(rank: Rank) -> tuple[Transfer, ...]:
    """What one rank alone says: its fastest collectives, which may still contain waits."""
    found = []
    for c in rank.collectives:
        message = Message(
            collective=c.collective,
            group_size=c.group_size,
            dtype=c.dtype,
            in_elements=c.in_nelems,
            out_elements=c.out_nelems,
        )
        told = _sized(message)
        if told is None or c.count < FEWEST or c.group_size < 2 or c.min_us <= 0:
            continue
        per_node = len(rank.meta.gpus)
        found.append(
            Transfer(
                kind=told[0],
                size=c.group_size,
                nodes=1 if rank.world_size and rank.world_size <= per_node else None,
                bytes=float(told[1]),
                seconds=c.min_us * 1e-6,
                points=c.count,
                spread=(c.median_us - c.min_us) / c.median_us if c.median_us else 0.0,
                confidence="low",
                sources=(rank.file,),
            )
        )
    return tuple(found)
