"""What traces measured of a machine, and the cluster file that tells it to `plan` and `predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.diagnose.calibrate.noun import Calibration
    from meshwright.diagnose.diagnosis import Diagnosis


def calibrated(found: Diagnosis) -> tuple[Calibration, str]:
    """What the traces of a diagnosis measured, and the cluster.toml that holds it.

    The cluster is that of the plan that ran where it is known, else nodes of the catalogue with the
    traces' device. MeshwrightError where nothing was measured or the device is not known.
    """
    from meshwright.diagnose import calibrate

    evidence = found.evidence
    base = evidence.job.cluster if evidence.job else None
    gpu = base.gpu if base else None
    measured = calibrate.calibration(
        evidence.ranks, evidence.across, gpu=gpu, job=evidence.job, promises=evidence.promises
    )
    return measured, calibrate.cluster_text(measured, base=base)


def cluster_text(found: Diagnosis) -> str:
    """The cluster.toml alone."""
    return calibrated(found)[1]
