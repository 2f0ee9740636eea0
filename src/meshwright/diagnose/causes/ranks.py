"""Causes on single ranks, for which the others wait: a slow device, loader or host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.base.words import ranks_in_words
from meshwright.diagnose.causes.exposed import WAIT
from meshwright.diagnose.causes.levers import at_most_replayed, lever
from meshwright.diagnose.causes.proofs import of_ranks, time
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.causes.stragglers import (
    MUCH_WAITING,
    Waited,
    is_of_its_stage,
    wait_us,
    waited_by_stages_us,
    waited_for,
)
from meshwright.diagnose.diagnosis import Proof

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case

_RFC = "Understanding stragglers in LLM training (arXiv 2505.05713), section 4"


def _found(case: Case, waited: Waited, *, does: str, do: str) -> Found:
    """Ranks that hold the others up, as a finding."""
    name = ranks_in_words(waited.ranks)
    whose = _whose(case, waited)
    us = min(waited.us + waited.share * waited_by_stages_us(case), case.part_us("exposed_comm"))
    return Found(
        message=f"The others wait {time(us)} of each step for {name}, {does}.",
        proofs=_proofs(case, waited),
        lever=lever(case, do.format(name), free=whose),
        takes_us={WAIT: at_most_replayed(case, us, whose)},
        ranks=waited.ranks,
    )


def _whose(case: Case, waited: Waited) -> str:
    """What to replay: one rank like the others, where only one is slow and that was replayed."""
    one = f"rank {waited.ranks[0]}" if len(waited.ranks) == 1 else ""
    replayed = case.across.what_if_us if case.across else {}
    return one if one and f"{one} as fast as the median" in replayed else "straggler"


def _proofs(case: Case, waited: Waited) -> tuple[Proof, ...]:
    """Who waits how much, and the collective in which it shows most."""
    across = case.across
    if across is None:
        return ()
    share = of_ranks(
        f"{waited.share:.0%} of all waiting in collectives is for {ranks_in_words(waited.ranks)}; "
        f"their own work takes {waited.over_median:.2f} times that of the others",
        waited.ranks,
    )
    met = [m for m in across.collectives if m.last_rank in waited.ranks]
    if not met:
        return (share,)
    worst = max(met, key=lambda m: m.start_skew_us)
    text = (
        f"rank {worst.last_rank} arrives {time(worst.start_skew_us)} after the first in this "
        f"collective, which then takes {time(worst.min_dur_us)}"
    )
    return share, Proof(
        text=text, events=(worst.kernel,), dur_us=worst.max_dur_us, ranks=(worst.last_rank,)
    )


@cause(
    "CMP905",
    "A slow device holds all ranks up",
    kind="compute resources",
    source=_RFC + ": worker faults; pytorch#71303",
    needs=("across",),
    foremost=True,
    same_as=("MOD907", "DAT906", "CMP916"),
)
def slow_device(case: Case) -> Found | None:
    """One rank's kernels take longer than those of its peers, in every step.

    Shown by: it comes last to collectives, and its compute between them is above the median.
    Costs: what the others wait for it. Do: check clocks, power cap, temperature, ECC errors and
    what else runs there; drain the node. The network is not at fault.
    """
    waited = waited_for(case, "compute")
    if waited is None or is_of_its_stage(case, waited.ranks):
        return None
    return _found(
        case,
        waited,
        does="which computes longer than its peers",
        do="check clocks, power, temperature and ECC of {}, or drain its node",
    )


@cause(
    "DAT909",
    "One rank's loader holds all ranks up",
    kind="data processing",
    source=_RFC + "; SPDL guide: slow loading shows as long all-reduces on the other ranks",
    needs=("across",),
    foremost=True,
)
def slow_loader_rank(case: Case) -> Found | None:
    """One rank waits for its data, and all the others for that rank.

    Shown by: it comes last to collectives after idle time in its loader. On the other ranks it
    looks like slow communication. Costs: what they wait.
    Do: look at that rank's storage, shard sizes and processes on its host; more workers, prefetch.
    """
    waited = waited_for(case, "data_loading")
    if waited is None:
        return None
    found = _found(
        case,
        waited,
        does="which waits for its data",
        do="look at storage, shards and host of {}; more workers, prefetch",
    )
    own = {"idle_dataloader": case.part_us("idle_dataloader")}
    return replace(found, takes_us={**found.takes_us, **own})


@cause(
    "HST907",
    "One rank's host holds all ranks up",
    kind="host",
    source=_RFC + ": garbage collection; MegaScale (NSDI 24), section 5",
    needs=("across",),
    foremost=True,
    said_by=("HST912",),
)
def slow_host_rank(case: Case) -> Found | None:
    """One rank's host launches its work late, and all the others wait for it.

    Shown by: it comes last to collectives after waiting for launches or copies, not after longer
    compute. Costs: what the others wait.
    Do: look at what else runs on that host, CPU frequency, NUMA binding, Python's garbage
    collection.
    """
    waited = waited_for(case, "host", "memory_copy")
    if waited is None:
        return None
    return _found(
        case,
        waited,
        does="whose host launches late",
        do="free the host of {}: NUMA binding, CPU frequency, other processes, manual GC",
    )


@cause(
    "COM914",
    "Ranks wait for one that is late",
    kind="communication",
    source="pytorch#71303; vllm#52777: waiting in all-reduce is no communication",
    needs=("across",),
    said_by=("MOD904", "MOD905", "MOD906"),
    same_as=("CMP905", "CMP916", "DAT909", "HST907", "HST912", "MOD907", "DAT906"),
)
def waiting_in_collectives(case: Case) -> Found | None:
    """Most of the time in collectives is waiting for whoever comes last.

    Shown by: collectives that begin on some ranks long before the last one joins. Costs: that
    waiting. It is no fault of the network. Do: look at the ranks that come last; trace more steps
    with all ranks to see why.
    """
    across, us = case.across, wait_us(case)
    if across is None or case.of_step(us) < MUCH_WAITING:
        return None
    waited = waited_for(case, "unknown", "upstream", "communication")
    ranks = waited.ranks if waited else ()
    if waited is None and across.straggler_rank is not None and not across.stragglers:
        ranks = (across.straggler_rank,)
    last = dict(zip(across.ranks, across.times_last, strict=True))
    most = max(last.values(), default=0)
    text = f"{across.matched} collectives were matched; " + (
        f"rank {max(last, key=lambda r: last[r])} came last to {most} of them" if last else ""
    )
    return Found(
        message=f"Ranks wait {time(us)} of each step in collectives"
        + (f", most of it for {ranks_in_words(ranks)}." if ranks else " for whoever comes last."),
        proofs=(of_ranks(text, ranks or case.numbers),),
        lever=lever(
            case, "find why the last ranks are late: their loader, host or clocks", free="straggler"
        ),
        takes_us={WAIT: at_most_replayed(case, waited.us if waited else us)},
        ranks=ranks,
        confidence="medium",
    )
