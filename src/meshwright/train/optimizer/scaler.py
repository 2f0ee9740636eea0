"""The loss scale that keeps fp16 gradients from vanishing, by the policy of torch's scaler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000


class Scaler:
    """Doubled after 2000 updates in a row, halved after every step that was no number.

    Same numbers as torch.amp.GradScaler (torch 2.13). All ranks hold one, and are told the same:
    whether the norm over all ranks was finite. No tensor and no exchange is needed for it.
    """

    def __init__(self, scale: float = FIRST, *, interval: int = INTERVAL) -> None:
        self.scale = scale
        self.interval = interval
        self.in_a_row = 0

    def after(self, *, finite: bool) -> None:
        """Takes note of a step."""
        if not finite:
            self.scale *= BACKOFF
            self.in_a_row = 0
            return
        self.in_a_row += 1
        if self.in_a_row == self.interval:
            self.in_a_row = 0
            grown = self.scale * GROWTH
            self.scale = grown if math.isfinite(grown) else self.scale

    def state(self) -> dict[str, Any]:
        """The scale and the count of updates since it changed."""
        return {"scale": self.scale, "in_a_row": self.in_a_row}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from `state`; what is no positive number there is left aside."""
        scale, count = state.get("scale"), state.get("in_a_row")
        if isinstance(scale, int | float) and math.isfinite(scale) and scale > 0:
            self.scale = float(scale)
        if isinstance(count, int) and 0 <= count < self.interval:
            self.in_a_row = count
