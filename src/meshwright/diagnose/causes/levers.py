"""What to change, and what a step would gain by it as far as that can be known."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Severity
from meshwright.diagnose.causes.case import is_elsewhere
from meshwright.diagnose.diagnosis import Lever
from meshwright.diagnose.ranks import rank_step_us
from meshwright.plan.words import FIELDS, read_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Rank
    from meshwright.plan.job import Job

PREDICTED = "predicted from the plan"
REPLAYED = "what-if on the critical path"
LOST = "the share that is lost"


def lever(
    case: Case,
    text: str,
    *,
    changes: Mapping[str, Any] | None = None,
    command: str = "",
    free: str = "",
) -> Lever:
    """What to change, with its gain: by the plan where one is known, else by a what-if.

    `changes` has fields of a plan as files spell them, or dotted keys of plan.toml. `free` names
    what the critical path is replayed without. Where neither says anything the gain is None.
    """
    changes = changes or {}
    known = case.job is not None and not is_elsewhere(case)
    gain_s = _of_this_step_s(case, changes) if known else None
    basis = PREDICTED
    if gain_s is None and free:
        gain_s, basis = replayed_gain_s(case, free), REPLAYED
    return Lever(
        text=text,
        changes=changes,
        command=command,
        gain_s=gain_s,
        basis="" if gain_s is None else basis,
    )


def _of_this_step_s(case: Case, changes: Mapping[str, Any]) -> float | None:
    """The predicted gain; its share of the measured step where that is shorter than the plan's."""
    gain_s = predicted_gain_s(case.job, changes) if case.job is not None else None
    if gain_s is None or case.job is None:
        return None
    from meshwright.cost.predict import predict

    return gain_s * min(1.0, case.step_us / 1e6 / predict(case.job).step_time_s)


def predicted_gain_s(job: Job, changes: Mapping[str, Any]) -> float | None:
    """Seconds that the prediction of a step falls by; None when it does not fall.

    None too when a change is no field of a plan, when rules refuse the changed plan, or when it
    does not fit in memory.
    """
    changed = changed_job(job, changes)
    if changed is None:
        return None
    from meshwright.cost.predict import predict

    try:
        before, after = predict(job), predict(changed)
    except (MeshwrightError, ArithmeticError, ValueError):
        return None
    if after.required_bytes > job.cluster.gpu.memory_bytes >= before.required_bytes:
        return None
    gain_s = before.step_time_s - after.step_time_s
    return gain_s if gain_s > 0 else None


def changed_job(job: Job, changes: Mapping[str, Any]) -> Job | None:
    """The job under the changed plan; None where there is no such plan or rules refuse it."""
    values: dict[str, Any] = {}
    for name, spelled in changes.items():
        if name not in FIELDS:
            return None
        value, problem = read_word(name, spelled)
        if problem:
            return None
        values[name] = value
    if not values:
        return None
    changed = job.with_plan(job.plan.replace(**values))
    return None if _is_refused(changed) else changed


def _is_refused(job: Job) -> bool:
    from meshwright.rules.rule import check, pruning_rules

    return any(f.severity is Severity.ERROR for f in check(job, pruning_rules()))


def replayed_gain_s(case: Case, free: str) -> float | None:
    """Seconds that a step gains if `free` took no time, by replay over ranks, else on each rank.

    `free` is "communication", an axis ("tp"), "data_loading", "host_launch", "memory_copy",
    "synchronization", "malloc", "straggler", "stage", or "rank 3". None where nothing was replayed.
    """
    across = case.across.what_if_us if case.across else {}
    together = [us for name, us in across.items() if _means(free, name)]
    if together:
        return max(0.0, across.get("as measured", case.step_us) - min(together)) / 1e6
    gains = [g for r in case.ranks if (g := _own_gain_us(r, free)) is not None]
    return median(gains) / 1e6 if gains else None


def at_most_replayed(case: Case, us: float, free: str = "straggler") -> float:
    """Time that ranks wait, as far as a step would be shorter without: others may wait anyway."""
    gain_s = replayed_gain_s(case, free) if case.across and case.across.what_if_us else None
    return us if gain_s is None else min(us, 1e6 * gain_s)


def _means(free: str, change: str) -> bool:
    """Whether a change over all ranks is what `free` asks for."""
    if free in _ACROSS:
        return change == _ACROSS[free]
    if free == "stage":
        return change.startswith("stage ")
    return change in (f"{free} communication free", f"{free} as fast as the median")


_ACROSS = {
    "communication": "communication free",
    "data_loading": "loader kept up",
    "host_launch": "launch free",
    "straggler": "no stragglers",
}


def _own_gain_us(rank: Rank, free: str) -> float | None:
    """What one rank's step would gain, by the replay of its own graph."""
    if rank.path is None:
        return None
    groups = {f"group {c.pg_name}" for c in rank.collectives if c.axis and c.axis == free}
    found = [us for name, us in rank.path.what_if_us.items() if name == free or name in groups]
    step_us = rank.path.step_us or rank_step_us(rank)
    return max(0.0, step_us - min(found)) if found else None
