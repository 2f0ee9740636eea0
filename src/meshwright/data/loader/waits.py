"""How long the training loop has waited for data."""

from __future__ import annotations

from meshwright.base.noun import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Seconds waited for batches, and in all, from the first batch asked for to the last one got.

    The first wait stands alone: nothing could be prefetched before it.
    """

    steps: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    waited_s: float = 0.0  # without the first
    elapsed_s: float = 0.0  # since the first batch was there

    @property
    def share(self) -> float:
        """Part of the time that went into waiting, the first batch left out."""
        return self.waited_s / self.elapsed_s if self.elapsed_s else 0.0


def after(waits: Waits, *, asked_s: float, got_s: float, began_s: float) -> Waits:
    """With one more batch; the clock readings are when it was asked for and there."""
    wait = got_s - asked_s
    if waits.steps == 0:
        return Waits(steps=1, first_s=wait, last_s=wait)
    return Waits(
        steps=waits.steps + 1,
        first_s=waits.first_s,
        last_s=wait,
        waited_s=waits.waited_s + wait,
        elapsed_s=got_s - began_s,
    )
