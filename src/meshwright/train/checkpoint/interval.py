"""How often to save: every so many steps or seconds, or as Young and Daly have it."""

from __future__ import annotations

from meshwright.base.noun import dataclass
from meshwright.rules.data.checkpoints import GPU_MTBF_S, young_s

FIRST_STEP = 10  # until a save has been timed: soon, so that a folder that cannot be written shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """When the next checkpoint is due.

    `steps` or `seconds` fix the interval. With neither it is Young's (Young 1974; Daly 2006,
    equation 13 to first order), from what a save was measured to hold training up and `mtbf_s`, the
    mean time between failures of the whole job: None assumes that each rank fails once in
    `GPU_MTBF_S`.
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
            wanted_s = float(young_s(stall_s, mtbf_s))
        return max(round(wanted_s / step_s), 1) if step_s > 0 else self.first()
