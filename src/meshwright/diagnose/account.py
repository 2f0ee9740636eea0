"""From a trace to its rank: the whole account of one file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.diagnose.host.timeline import as_device, computes_on_host
from meshwright.diagnose.path.find import critical_path
from meshwright.diagnose.split.rank import rank_of

if TYPE_CHECKING:
    from meshwright.diagnose.rank import Rank
    from meshwright.diagnose.trace.columns import Trace


def account(trace: Trace) -> Rank:
    """The rank of a trace with its critical path; a run on CPUs has its host for a device."""
    on_host = computes_on_host(trace)
    seen = as_device(trace) if on_host else trace
    rank = rank_of(seen)
    rank = replace(rank, computes_on="host") if on_host else rank
    return replace(rank, path=critical_path(seen, rank))
