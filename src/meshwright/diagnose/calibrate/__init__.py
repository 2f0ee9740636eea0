"""A cluster file from traces: what products, attention, memory and collectives reached."""

from __future__ import annotations

from meshwright.diagnose.calibrate.measure import calibration
from meshwright.diagnose.calibrate.write import cluster_text

__all__ = ["calibration", "cluster_text"]
