"""How often to save: every so many steps or seconds, or as Young and Daly have it."""

from __future__ import annotations

import math

from meshwright.base.noun import dataclass

# Llama 3 (arXiv 2407.21783) section 3.3.4: 419 interruptions in 54 days on 16,384 GPUs
GPU_MTBF_S = 54 * 86400 * 16384 / 419
FIRST_STEP = 10  # until a save has been timed: soon, so that a folder that cannot be written shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """When the next checkpoint is due.

    `steps` or `seconds` fix the interval. With neither it is Young's, from what a save was measured
    to cost and `mtbf_s`, the mean time between failures of the whole job: None assumes that each
    rank fails once in `GPU_MTBF_S`.
    """

    steps: int | None = None
    seconds: float | None = None
    mtbf_s: float | None = None

    def first(self) -> int:
        """Steps before the first save, of which nothing has been measured yet."""
        return self.steps or FIRST_STEP

    def steps_between(self, *, stall_s: float, step_s: float, ranks: int) -> int:
        """Steps to the next save, at least 1."""
        if self.steps is not None:
            return self.steps
        wanted_s = self.seconds
        if wanted_s is None:
            mtbf_s = self.mtbf_s if self.mtbf_s is not None else GPU_MTBF_S / ranks
            wanted_s = optimum_s(stall_s, mtbf_s)
        return max(round(wanted_s / step_s), 1) if step_s > 0 else self.first()


def optimum_s(stall_s: float, mtbf_s: float) -> float:
    """Seconds between saves that lose least time, sqrt(2 * stall * MTBF).

    Young 1974; Daly 2006 (equation 13 to first order). `stall_s` is what a save holds training up.
    """
    return math.sqrt(2 * stall_s * mtbf_s)
