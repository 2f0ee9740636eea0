"""Accepted values near a refused one, for fixes that no single number divides or multiplies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.plan.job import Job
    from meshwright.rules.rule import Rule

FARTHEST = 1 << 16


def accepted_near(value: int, accepts: Callable[[int], bool], *, limit: int) -> tuple[int, ...]:
    """The nearest accepted integers below and above `value`, within 1..limit; neither may exist.

    Looks no further than `FARTHEST`, so that an absurd value or cluster does not keep it busy.
    """
    limit = min(limit, FARTHEST)
    below = next((v for v in range(min(int(value) - 1, limit), 0, -1) if accepts(v)), None)
    above = next((v for v in range(max(int(value), 0) + 1, limit + 1) if accepts(v)), None)
    return tuple(v for v in (below, above) if v is not None)


def silencing(rule_: Rule, job: Job, name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Those of `values` which, put into field `name` of the one plan, keep the rule from firing."""

    def is_silent(value: Any) -> bool:
        changed = job.plan.replace(**{name: np.asarray(value)[()]})
        return not np.all(rule_.condition(job.with_plan(changed)))

    return tuple(v for v in values if is_silent(v))
