"""What holds between ranks."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.trace.columns import Left


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """One collective as all of its ranks met in it; `wait_us` by rank in the order of `ranks`.

    The last to arrive does not wait: `min_dur_us` is the transfer.
    """

    index: int
    kernel: str
    group: str
    axis: str
    ranks: tuple[int, ...]
    start_skew_us: float
    end_skew_us: float
    last_rank: int
    min_dur_us: float
    max_dur_us: float
    wait_us: tuple[float, ...]
    bytes: int | None = None
    busbw_GBps: float | None = None  # noqa: N815 - the name in the record


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that others wait for, its share of that waiting, and what it did meanwhile.

    `waited_for_us` is what all others lost by it over the whole traces, less what computation hid,
    counted at the root of the chains of waits. A rank that was last only because it waited itself
    is "upstream": its entry has the waiting that was passed on, and for whom in `waits_for`.
    """

    rank: int
    times_last: int
    waited_for_us: float
    share: float
    # "compute", "data_loading", "host", "memory_copy", "communication" (its own transfers take
    # longer: a slow link), "upstream", "unknown"
    because: str
    over_median: float  # its own work of a step over the median of the others
    excess_us: float = 0.0  # of what `because` names, in a step, over the median of the others
    waits_for: int | None = None  # the root, where `because` is "upstream"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """Bus bandwidth of a group at one size, from the last to arrive."""

    collective: str
    group: str
    axis: str
    ranks: tuple[int, ...]
    bytes: int
    count: int
    busbw_GBps: float  # noqa: N815
    spread: float  # 90th over 10th percentile of the transfers
    spans_nodes: bool | None
    transfer_us: float = 0.0  # in the median
    of_peers: float | None = None  # share of the median of other groups of equal shape
    of_cluster: float | None = None  # share of what the job's cluster should reach
    slow: bool = False  # less than 60 % of either


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTime:
    """Communication of one axis, mean over ranks, in microseconds of a step."""

    axis: str
    total_us: float
    exposed_us: float
    wait_us: float | None
    transfer_us: float | None
    calls: float
    bytes: float
    exposed_transfer_us: float | None = None  # of the transfer, what no computation hid


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """The job: every sequence has one entry for each of `ranks`, in their order."""

    ranks: tuple[int, ...]
    world_size: int | None
    nccl_total_us_by_rank: tuple[float, ...]
    wait_us_by_rank: tuple[float, ...]
    wait_share_by_rank: tuple[float, ...]
    times_last: tuple[int, ...]
    step_us_by_rank: tuple[float, ...]
    compute_us_by_rank: tuple[float, ...]
    transfer_us_sum_of_min: float
    straggler_rank: int | None
    stragglers: tuple[Straggler, ...]  # at the root of waits, most waited for first
    collectives: tuple[Met, ...]  # capped; the longest waits are kept, see `matched`
    matched: int
    unmatched: int
    passed_on: tuple[Straggler, ...] = ()  # "upstream": last only because they waited themselves
    partial: int = 0  # of the matched, those whose groups have members without a trace
    clock_shift_us: tuple[float, ...] = ()  # subtracted from each rank's clock
    # 90th percentile of what ends differ by after that; None on one host, which has one clock
    clock_residual_us: float | None = None
    unaligned: tuple[int, ...] = ()  # ranks whose clock hangs together with no other's
    links: tuple[LinkRate, ...] = ()
    axes: tuple[AxisTime, ...] = ()
    group_axes: Mapping[str, str] = field(default_factory=dict)  # process group -> axis
    ambiguous_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # -> its axes
    # computation, max/mean: "stage" over stages, "expert" over expert ranks, "sequence" over ranks
    # of a stage within single steps, once what a rank always takes longer is taken out
    imbalance: Mapping[str, float] = field(default_factory=dict)
    stage_compute_us: tuple[float, ...] = ()  # of each pipeline stage, median over its ranks
    stage_by_rank: tuple[int, ...] = ()  # -1 unknown
    what_if_us: Mapping[str, float] = field(default_factory=dict)  # predicted step over all ranks
    step_variation: float | None = None  # std/mean over steps
    straggler_rotates: bool | None = None  # whom all wait for changes from step to step
    left: tuple[Left, ...] = ()
