"""Whether predictions put plans in the right order, in groups of runs that differ only by plan."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.evidence.row import INTEGERS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.row import Run

PLAN_COLUMNS = (
    "micro_batch",
    "grad_accum",
    "tp",
    "pp",
    "vpp",
    "pp_schedule",
    "cp",
    "ep",
    "etp",
    "dp",
    "fsdp_shard",
    "zero_stage",
    "sequence_parallel",
    "recompute",
    "recompute_detail",
    "offload",
    "comm_overlap",
    "cuda_graph",
)
SAME_COLUMNS = tuple(c for c in (*INTEGERS, *TEXTS) if c not in (*PLAN_COLUMNS, "notes"))
LEAST_PLANS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of one source that differ only by plan.

    `regret` is how much longer the plan predicted fastest took than the fastest measured one;
    `spearman` the rank correlation of predicted and measured step times, NaN when either is
    constant. `ids` are the rows, `title` says what they share.
    """

    source: str
    title: str
    ids: tuple[str, ...]
    plans: int
    regret: float
    spearman: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Regret and rank correlation over groups."""

    groups: int
    median_regret: float
    worst_regret: float
    worst_group: str
    median_spearman: float


def groups(runs: Sequence[Run], predicted_s: Mapping[str, float]) -> tuple[Group, ...]:
    """Every group of at least `LEAST_PLANS` plans with a prediction and a measured step time.

    `predicted_s` maps row ids to predicted seconds. A plan measured several times counts once, by
    its median.
    """
    members: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.id in predicted_s and run.step_time_s is not None:
            shared = tuple(run.row.text(c) for c in SAME_COLUMNS)
            members[(run.source, *shared)].append(run)
    found = (_group(same, predicted_s) for same in members.values())
    return tuple(g for g in found if g is not None)


def _group(runs: Sequence[Run], predicted_s: Mapping[str, float]) -> Group | None:
    """One group, None when it has too few plans."""
    plans: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in runs:
        plans[tuple(run.row.text(c) for c in PLAN_COLUMNS)].append(run)
    if len(plans) < LEAST_PLANS:
        return None
    measured = np.asarray([_median_measured(same) for same in plans.values()])
    predicted = np.asarray([np.median([predicted_s[r.id] for r in s]) for s in plans.values()])
    return Group(
        source=runs[0].source,
        title=_title(runs[0]),
        ids=tuple(run.id for run in runs),
        plans=len(plans),
        regret=regret(predicted, measured),
        spearman=spearman(predicted, measured),
    )


def _median_measured(runs: Sequence[Run]) -> float:
    """Median measured seconds of the runs of one plan."""
    return float(np.median([r.step_time_s or np.nan for r in runs]))


def _title(run: Run) -> str:
    """What a group shares, in few words."""
    row = run.row
    return (
        f"{row.text('model')}, {row.text('num_gpus')} x {row.text('gpu')}, "
        f"seq {row.text('seq_len')}, batch {row.text('global_batch')}, {row.text('precision')}"
    )


def regret(predicted: Any, measured: Any) -> float:
    """Measured time of the plan predicted fastest over the fastest measured, less 1.

    Of several plans predicted equally fast the mean counts, as if one were drawn.
    """
    predicted, measured = np.asarray(predicted), np.asarray(measured)
    chosen = measured[predicted == predicted.min()].mean()
    return float(chosen / measured.min() - 1.0)


def spearman(left: Any, right: Any) -> float:
    """Spearman's rank correlation, ties at their average rank; NaN when a side is constant."""
    a, b = average_ranks(left), average_ranks(right)
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def average_ranks(values: Any) -> NDArray[np.float64]:
    """Ranks from 1, equal values sharing the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank: NDArray[np.float64] = last - (counts - 1) / 2.0
    return mean_rank[inverse]


def summarize(found: Sequence[Group]) -> Ranking | None:
    """Median and worst over groups; None for no groups."""
    if not found:
        return None
    worst = max(found, key=lambda g: g.regret)
    correlations = [g.spearman for g in found if not np.isnan(g.spearman)]
    return Ranking(
        groups=len(found),
        median_regret=float(np.median([g.regret for g in found])),
        worst_regret=worst.regret,
        worst_group=f"{worst.source}: {worst.title}",
        median_spearman=float(np.median(correlations)) if correlations else float("nan"),
    )
