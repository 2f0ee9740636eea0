"""How well a source is predicted by a fit that never saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.cost.calibration import default_calibration
from meshwright.evidence.calibrating import Measured, parameters_for, with_default, with_entries
from meshwright.evidence.errors import judge, relative_error
from meshwright.evidence.fit import linearize, solve_without, source_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.cost.calibration import Calibration
    from meshwright.evidence.errors import Judgement
    from meshwright.evidence.fit import Linear
    from meshwright.evidence.row import Run


def leave_one_out(
    runs: Sequence[Run], *, calibration: Calibration | None = None, exponent: float = 0.7
) -> Judgement | None:
    """Errors of each source under parameters fitted to the other sources; None for no rows.

    Each fit starts at `calibration` and uses one linearization around it for the parameters, which
    move little when one source goes; the left-out rows are then predicted exactly. A stack or
    hardware generation that too few other rows inform becomes what it inherits.
    """
    measured = Measured(runs, calibration or default_calibration())
    if not measured.runs:
        return None
    measured.calibration = with_entries(measured.calibration, measured)
    sources = np.asarray([run.source for run in measured.runs])
    weights = source_weights(list(sources), exponent=exponent)
    linear = linearize(parameters_for(measured), measured, measured.seconds, weights)
    off = np.empty(len(sources))
    for name in dict.fromkeys(sources.tolist()):
        left_out = np.flatnonzero(sources == name)
        fitted = _fitted_without(measured, linear, left_out)
        predicted = measured.under(fitted, left_out)
        off[left_out] = relative_error(predicted, measured.seconds[left_out])
    return judge(sources.tolist(), off.tolist())


def _fitted_without(measured: Measured, linear: Linear, left_out: np.ndarray) -> Calibration:
    """The calibration without some rows."""
    gone = set(left_out.tolist())
    rest = [job for i, job in enumerate(measured.jobs) if i not in gone]
    fitted = measured.calibration.with_values(solve_without(linear, left_out))
    return with_default(fitted, rest)
