"""What holds between ranks."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """A rank that others wait for, its share of that waiting, and what it did meanwhile."""

    rank: int
    times_last: int
    waited_for_us: float
    share: float
    because: str  # "compute", "data_loading", "host", "memory_copy", "upstream", "unknown"
    over_median: float  # its own work between collectives over the median of the others


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
    stragglers: tuple[Straggler, ...]
    collectives: tuple[Met, ...]  # capped; the longest waits are kept, see `matched`
    matched: int
    unmatched: int
    clock_shift_us: tuple[float, ...] = ()  # subtracted from each rank's clock
    clock_residual_us: float | None = None
    links: tuple[LinkRate, ...] = ()
    axes: tuple[AxisTime, ...] = ()
    group_axes: Mapping[str, str] = field(default_factory=dict)  # process group -> axis
    imbalance: Mapping[str, float] = field(
        default_factory=dict
    )  # "stage", "expert", "sequence": max/mean
    what_if_us: Mapping[str, float] = field(default_factory=dict)  # predicted step over all ranks
    step_variation: float | None = None  # std/mean over steps
    straggler_rotates: bool | None = None  # the last to arrive changes from step to step
