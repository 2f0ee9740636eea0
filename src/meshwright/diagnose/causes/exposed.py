"""Communication that stands exposed: by axis of the plan, waits apart from transfers."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from meshwright.diagnose.causes.case import axis_of
from meshwright.diagnose.causes.stragglers import stage_wait_us, wait_us, waited_by_stages_us

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Rank

EXPOSED = "exposed_comm"
WAIT = f"{EXPOSED}:wait"
DATA_PARALLEL = ("dp", "dp_shard", "dp_replicate", "fsdp", "dp_cp")


def part_of(axis: str) -> str:
    """The portion of the exposed part that belongs to an axis; "" is what no axis is known for."""
    return f"{EXPOSED}:{'dp' if axis in DATA_PARALLEL else axis}"


def portions(case: Case) -> dict[str, float]:
    """What the exposed part consists of: transfers by axis, and waits."""
    found = {WAIT: wait_us(case) + stage_wait_us(case)}
    for axis, us in _by_axis(case).items():
        found[part_of(axis)] = found.get(part_of(axis), 0.0) + us
    return found


def first_of(case: Case, us: float, *axes: str) -> dict[str, float]:
    """A time as portions: of the first of these axes as far as it goes, then of the next."""
    room = portions(case)
    takes: dict[str, float] = {}
    for name in dict.fromkeys(map(part_of, axes)):
        takes[name] = min(us - sum(takes.values()), room.get(name, 0.0))
    return takes


def exposed_us(case: Case, *axes: str) -> float:
    """Exposed communication of axes in one step, without waits that are known to be waits.

    "" is the axis of what no axis is known for.
    """
    return sum(_by_axis(case).get(axis, 0.0) for axis in axes)


def _by_axis(case: Case) -> dict[str, float]:
    """Exposed transfer of each axis; all of them add up to the exposed part less the waits."""
    found = _of_across(case) or _of_ranks(case)
    total = sum(found.values())
    room = max(0.0, case.part_us(EXPOSED) - wait_us(case) - waited_by_stages_us(case))
    if not total:
        return {"": room}
    return {axis: us * min(1.0, room / total) for axis, us in found.items()} | (
        {"": found.get("", 0.0) * min(1.0, room / total) + room - total} if room > total else {}
    )


def _of_across(case: Case) -> dict[str, float]:
    found: dict[str, float] = {}
    for axis in case.across.axes if case.across else ():
        us = max(0.0, axis.exposed_us - (axis.wait_us or 0.0))
        name = axis_of(case, axis.axis)
        found[name] = found.get(name, 0.0) + us
    return found


def _of_ranks(case: Case) -> dict[str, float]:
    """From the collectives of each rank: shares of the exposed part by what stood exposed."""
    shares = [_axis_shares(case, r) for r in case.ranks]
    names = dict.fromkeys(name for share in shares for name in share)
    part = case.part_us(EXPOSED)
    return {n: part * fmean(share.get(n, 0.0) for share in shares) for n in names}


def _axis_shares(case: Case, rank: Rank) -> dict[str, float]:
    total = sum(c.exposed_us for c in rank.collectives)
    found: dict[str, float] = {}
    for item in rank.collectives:
        if total:
            name = axis_of(case, item.axis)
            found[name] = found.get(name, 0.0) + item.exposed_us / total
    return found


def overlapped_share(case: Case, *axes: str) -> float | None:
    """Share of the time of these axes' collectives that ran beside compute; None without any.

    Without axes: of all communication.
    """
    if not axes:
        pairs = [
            (r.attribution.overlapped_comm_us, r.attribution.parts_us.get(EXPOSED, 0.0))
            for r in case.ranks
            if r.attribution
        ]
        hidden, bare = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
        return hidden / (hidden + bare) if hidden + bare else None
    if case.across and (found := [a for a in case.across.axes if axis_of(case, a.axis) in axes]):
        total, bare = sum(a.total_us for a in found), sum(a.exposed_us for a in found)
    else:
        items = [c for r in case.ranks for c in r.collectives if axis_of(case, c.axis) in axes]
        total, bare = sum(c.sum_us for c in items), sum(c.exposed_us for c in items)
    return 1 - bare / total if total else None


def axis_us(case: Case, *axes: str) -> float | None:
    """Exposed communication of axes with their waits; None where no axis at all is known."""
    found: dict[str, float] = {}
    for item in case.across.axes if case.across else ():
        name = axis_of(case, item.axis)
        found[name] = found.get(name, 0.0) + item.exposed_us
    found = found or _of_ranks(case)
    if not any(name for name in found):
        return None
    return sum(found.get(axis, 0.0) for axis in axes)
