"""Links that carry less than they should."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.diagnose.causes.exposed import exposed_us
from meshwright.hardware.efficiency import collective_s

if TYPE_CHECKING:
    from meshwright.diagnose.across.noun import LinkRate
    from meshwright.diagnose.causes.case import Case
    from meshwright.hardware.cluster import Link

LARGE_BYTES = 8e6  # below it latency, not the link, decides
BELOW = 0.5  # of what is usual
PEERS = 3  # groups to compare with
FEWEST = 3  # instances of one size
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
    """A group whose rate on the bus is below the usual one, and what that is judged by."""

    rate: LinkRate
    usual_gbps: float
    by: str


def slow_links(case: Case) -> list[SlowLink]:
    """Groups at less than half of the rate of their peers, or of the links of the plan."""
    rates = [r for r in (case.across.links if case.across else ()) if _counts(r)]
    found = []
    for rate in rates:
        usual = _of_peers(rate, rates) or _of_plan(case, rate)
        if usual is not None and rate.busbw_GBps < BELOW * usual.usual_gbps:
            found.append(usual)
    return sorted(found, key=lambda s: s.rate.busbw_GBps / s.usual_gbps)


def _counts(rate: LinkRate) -> bool:
    return rate.bytes >= LARGE_BYTES and rate.count >= FEWEST and rate.busbw_GBps > 0


def _of_peers(rate: LinkRate, rates: list[LinkRate]) -> SlowLink | None:
    """The median of other groups of the same kind, axis and about the same size."""
    peers = [
        r.busbw_GBps
        for r in rates
        if r.ranks != rate.ranks
        and (r.collective, r.axis, len(r.ranks), r.spans_nodes)
        == (rate.collective, rate.axis, len(rate.ranks), rate.spans_nodes)
        and 0.5 <= r.bytes / rate.bytes <= 2
    ]
    if len(peers) < PEERS:
        return None
    return SlowLink(rate=rate, usual_gbps=median(peers), by=f"{len(peers)} groups like it")


def _of_plan(case: Case, rate: LinkRate) -> SlowLink | None:
    """What the plan's link gives for this size, by its measured curve."""
    kind = _KINDS.get(rate.collective.lower())
    link = _link(case, rate)
    size = len(rate.ranks)
    if link is None or kind is None or size < 2:
        return None
    seconds = float(collective_s(link, kind, float(rate.bytes), size))
    if seconds <= 0:
        return None
    bus = rate.bytes / seconds * _PASSES.get(kind, 1.0) * (size - 1) / size
    return SlowLink(rate=rate, usual_gbps=bus / 1e9, by=f"the {link.name} of the plan")


def _link(case: Case, rate: LinkRate) -> Link | None:
    if case.job is None or rate.spans_nodes is None:
        return None
    links = case.job.cluster.links
    return links[-1] if rate.spans_nodes else links[0]


def slow_link_us(case: Case) -> float:
    """Exposed time of a step that links would save at their usual rate."""
    worst: dict[str, float] = {}
    for slow in slow_links(case):
        lost = 1 - slow.rate.busbw_GBps / slow.usual_gbps
        worst[slow.rate.axis] = max(worst.get(slow.rate.axis, 0.0), lost)
    return sum(lost * exposed_us(case, axis) for axis, lost in worst.items())
