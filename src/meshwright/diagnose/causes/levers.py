"""What to change, and what a step would gain by it as far as that can be known."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Severity
from meshwright.diagnose.causes.case import rank_step_us
from meshwright.diagnose.diagnosis import Lever
from meshwright.plan.words import FIELDS, read_word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.diagnose.causes.case import Case
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
    gain_s = predicted_gain_s(case.job, changes) if case.job is not None else None
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
    """Seconds that a step gains if `free` took no time, by replay over ranks or on each."""
    if case.across and free in case.across.what_if_us:
        return max(0.0, case.step_us - case.across.what_if_us[free]) / 1e6
    gains = [
        rank_step_us(r) - r.path.what_if_us[free]
        for r in case.ranks
        if r.path and free in r.path.what_if_us
    ]
    return max(0.0, median(gains)) / 1e6 if gains else None
