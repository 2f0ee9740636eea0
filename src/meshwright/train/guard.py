"""Losses that are no numbers: left out a few times in a row, then the run is stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from meshwright.train.settings import Guard
    from meshwright.train.step import Outcome

SKIP = "skip"


class Diverged(MeshwrightError):  # noqa: N818 - says what happened
    """Loss or gradients are no numbers, more often than the run allows.

    Final: the same steps from the last checkpoint would bring the same numbers.
    """

    is_final = True


class Watchman:
    """Counts updates that were left out because loss or gradients were not finite."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.in_a_row = 0
        self.left_out = 0

    def check(self, outcome: Outcome, *, step: int) -> None:
        """Takes note of a step; `Diverged` when it is one too many.

        One that the loss scale of fp16 was too large for is left out too, and counts for nothing.
        """
        if outcome.overflowed:
            self.left_out += 1
            return
        if outcome.updated:
            self.in_a_row = 0
            return
        self.in_a_row += 1
        self.left_out += 1
        what = f"loss {outcome.loss} and gradient norm {outcome.norm} at step {step}"
        if self._guard.nonfinite != SKIP:
            raise Diverged(
                f"{what} are not finite", hint="lower the learning rate, or --nonfinite skip"
            )
        if self.in_a_row > self._guard.nonfinite_limit:
            raise Diverged(
                f"{what}: {self.in_a_row} updates in a row were not finite",
                hint="resume from an earlier checkpoint with a lower learning rate, or other data",
            )
