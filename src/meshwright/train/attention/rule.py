"""What a layer says about its attention."""

from __future__ import annotations

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Scores are `scaling` * q.k, then softcap * tanh(score / softcap), of the last `window` keys.

    A query sees itself and the window - 1 tokens before it; None is no window, no cap.
    """

    scaling: float
    window: int | None = None
    softcap: float | None = None
