"""The answer: what the evidence amounts to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api.diagnosing.guards import slowed
from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.causes.judge import causes
from meshwright.diagnose.causes.promises import promises
from meshwright.diagnose.causes.telling import lost_us, principal, step_us, summary
from meshwright.diagnose.diagnosis import Diagnosis
from meshwright.report.diagnosis.causes import MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.trace.columns import Left


def answered(evidence: Evidence, *, guards: Sequence[str], left: Sequence[Left]) -> Diagnosis:
    """The diagnosis of the evidence: promises kept or not, causes, and the answer in sentences."""
    evidence = replace(evidence, promises=promises(evidence))
    found = causes(evidence)
    step = step_us(evidence)
    guards = (*guards, *slowed(step, evidence.metrics))
    first, second = principal(evidence, found)
    return Diagnosis(
        summary=summary(evidence, found),
        step_us=step,
        lost_us=lost_us(evidence, found),
        principal=first,
        second=second,
        evidence=evidence,
        causes=found,
        guards=(*guards, *(g for g in case_of(evidence).guards if not g.endswith(MISSING))),
        left=tuple(left),
    )
