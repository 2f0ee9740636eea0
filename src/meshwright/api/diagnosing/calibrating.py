"""A cluster file of what traces show of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.diagnose.calibrate.noun import Calibration
    from meshwright.diagnose.diagnosis import Diagnosis


def calibrated(found: Diagnosis) -> tuple[Calibration, str]:
    """What was measured, and the cluster.toml of it that `plan --cluster` takes.

    It is the cluster of the plan that ran, where there is one, with what was measured in its place.
    MeshwrightError where nothing was measured, or of a device that nobody knows.
    """
    from meshwright.diagnose import calibrate

    evidence = found.evidence
    base = evidence.job.cluster if evidence.job else None
    gpu = base.gpu if base else None
    measured = calibrate.calibration(evidence.ranks, evidence.across, gpu=gpu)
    return measured, calibrate.cluster_text(measured, base=base)
