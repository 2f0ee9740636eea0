"""How well a source is predicted by a fit that never saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.evidence.calibrating import entries_of, refit
from meshwright.evidence.errors import judge, relative_error
from meshwright.evidence.forecasts import forecasts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.cost.calibration import Calibration
    from meshwright.evidence.errors import Judgement
    from meshwright.evidence.row import Run


def leave_one_out(
    runs: Sequence[Run],
    *,
    calibration: Calibration | None = None,
    max_evaluations: int = 8,
) -> Judgement | None:
    """Errors of each source under parameters fitted to the other sources.

    Only what the left-out source reads is fitted again, since it informs nothing else; a stack or
    generation that no other source has becomes what it inherits.
    """
    sources: list[str] = []
    off: list[float] = []
    for name in dict.fromkeys(run.source for run in runs if run.is_judged):
        rest = [run for run in runs if run.source != name]
        left = [run for run in runs if run.source == name and run.is_judged]
        fitted, _ = refit(
            rest, calibration=calibration, max_evaluations=max_evaluations, only=entries_of(left)
        )
        found = _errors(left, fitted)
        sources += [name] * len(found)
        off += found
    return judge(sources, off)


def _errors(runs: Sequence[Run], calibration: Calibration) -> list[float]:
    """Relative errors of the rows that have both figures."""
    found = forecasts([run.row for run in runs], calibration=calibration)
    return [
        float(relative_error(f.step_time_s, r.step_time_s))
        for r, f in zip(runs, found, strict=True)
        if f.step_time_s and r.step_time_s
    ]
