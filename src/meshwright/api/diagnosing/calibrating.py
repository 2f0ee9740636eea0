"""A cluster file of what traces show of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.diagnosing.later import verb
from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from meshwright.diagnose.diagnosis import Diagnosis


def cluster_text(found: Diagnosis) -> str:
    """The cluster.toml that `plan --cluster` takes; MeshwrightError where nothing was measured."""
    calibration, text_of = verb("calibrate", "calibration"), verb("calibrate", "cluster_text")
    if calibration is None or text_of is None:
        raise MeshwrightError("traces cannot be calibrated from yet")
    text: str = text_of(calibration(found.evidence.ranks, found.evidence.across))
    return text
