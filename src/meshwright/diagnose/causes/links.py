"""Links that carry less than they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.diagnose.causes.case import axis_of, is_elsewhere
from meshwright.diagnose.causes.exposed import exposed_us, part_of
from meshwright.diagnose.causes.products import device_of
from meshwright.hardware.catalogue import cluster
from meshwright.hardware.efficiency import collective_s

if TYPE_CHECKING:
    from meshwright.diagnose.across.noun import LinkRate
    from meshwright.diagnose.causes.case import Case
    from meshwright.hardware.cluster import Link

LARGE_BYTES = 8e6  # below it latency, not the link, decides
JUDGED_SLOW = 0.6  # as across ranks
BELOW = 0.5  # of what is usual
FEWEST = 3  # instances of one size
PEERS, PLAN, USUAL = "groups like it", "the link of the plan", "the usual node of this device"
_KINDS = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "_allgather_base": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all",
}
_PASSES = {"all_reduce": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """A group whose rate on the bus is a `share` of the usual one, and what that is judged by."""

    rate: LinkRate
    share: float
    by: str


def slow_links(case: Case) -> list[SlowLink]:
    """Groups far below the rate of their peers, of the plan's links, or of the usual node."""
    rates = case.across.links if case.across else ()
    found = [s for r in rates if (s := _slow(case, r) or _below_usual(case, r)) is not None]
    return sorted(found, key=lambda s: s.share)


def _slow(case: Case, rate: LinkRate) -> SlowLink | None:
    """The link as it was judged across ranks."""
    told = [(s, by) for s, by in ((rate.of_peers, PEERS), (rate.of_cluster, PLAN)) if s is not None]
    judged = [(s, by) for s, by in told if not (by == PLAN and is_elsewhere(case))]
    if not rate.slow or not judged:
        return None
    share, by = min(judged)
    if share >= JUDGED_SLOW:  # by what was left out above
        return None
    return SlowLink(rate=rate, share=share, by=by)


def _below_usual(case: Case, rate: LinkRate) -> SlowLink | None:
    """Without a plan: inside a host, beside the node that the catalogue has for this device."""
    kind, size = _KINDS.get(rate.collective.lower()), len(rate.ranks)
    if case.job is not None or rate.spans_nodes is not False or kind is None or size < 2:
        return None
    link = _usual_link(case, size)
    if link is None or rate.bytes < LARGE_BYTES or rate.count < FEWEST:
        return None
    usual_s = float(collective_s(link, kind, float(rate.bytes), size))
    bus = rate.bytes / usual_s * _PASSES.get(kind, 1.0) * (size - 1) / size / 1e9
    share = rate.busbw_GBps / bus
    return SlowLink(rate=rate, share=share, by=USUAL) if 0 < share < BELOW else None


def _usual_link(case: Case, size: int) -> Link | None:
    gpu = device_of(case)
    if gpu is None:
        return None
    try:
        link = cluster(gpu.name, nodes=1).links[0]
    except MeshwrightError:
        return None
    return link if size <= link.domain else None


def slow_link_takes_us(case: Case) -> dict[str, float]:
    """Exposed time of a step that links would save at their usual rate, by portion."""
    worst: dict[str, float] = {}
    for slow in slow_links(case):
        axis = axis_of(case, slow.rate.axis)
        worst[axis] = max(worst.get(axis, 0.0), 1 - slow.share)
    return {part_of(axis): lost * exposed_us(case, axis) for axis, lost in worst.items()}
