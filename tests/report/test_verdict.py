"""What `predict` says of the memory: fits, may not fit, does not fit."""

from __future__ import annotations

import dataclasses

import pytest

from meshwright.cost.predict import predict
from meshwright.report.prediction import memory_line
from meshwright.rules.example import build_job


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(1.01, ": fits"), (0.995, "may not fit"), (0.5, "does not fit")],
)
def test_three_verdicts(share, verdict):
    """A device with a share of what the plan needs, margin and buffers included."""
    job = build_job(tp=2)
    prediction = predict(job)
    gpu = dataclasses.replace(job.cluster.gpu, memory_bytes=share * prediction.required_bytes)
    smaller = dataclasses.replace(job, cluster=dataclasses.replace(job.cluster, gpu=gpu))
    assert verdict in memory_line(smaller, prediction)
