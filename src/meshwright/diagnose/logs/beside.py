"""A memory snapshot beside what the plan predicts of the fullest rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.cost.memory import memory

if TYPE_CHECKING:
    from meshwright.diagnose.logs.noun import MemorySnapshot
    from meshwright.plan.job import Job

PEAK = "peak"
_TERMS = {  # of the cost model, by category of a snapshot
    "weights": ("weights", "weights.fp8_copies"),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "activations": ("activations", "logits"),
    PEAK: ("peak",),
}


def with_prediction(snapshot: MemorySnapshot, job: Job) -> MemorySnapshot:
    """The snapshot with predicted bytes by category, and of the peak, of the plan's fullest rank.

    Communication has no prediction of its own at the peak, and what was allocated before recording
    began stands in no category.
    """
    found = memory(job)
    terms, stage = found.terms, f"memory.stage{int(found.stage)}."
    told = {
        category: round(sum(float(terms.get(stage + name, 0.0)) for name in names))
        for category, names in _TERMS.items()
    }
    return replace(snapshot, predicted_bytes=told)
