"""What only the plan that ran gives a measure for."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from jobs import Job, compute, meet, play
from meshwright.base.errors import MeshwrightError
from meshwright.cost.calibration import default_calibration, fits_of
from meshwright.diagnose.calibrate import calibration, cluster_text
from meshwright.diagnose.calibrate.beside import beside_plan
from meshwright.diagnose.diagnosis import Promise
from meshwright.hardware import catalogue, efficiency
from meshwright.hardware.measured import OPERATORS, Curves, OperatorCurve, Overheads, Piece
from meshwright.hardware.table import cluster_from_table

PROMISES = (
    Promise(term="time", predicted_s=1.0, measured_s=2.0),
    Promise(term="time.compute.elementwise + optimizer", predicted_s=0.1, measured_s=0.25),
    Promise(term="time.compute.host + fixed", predicted_s=0.01, measured_s=0.04),
)
CURVE = OperatorCurve(elements=(1e4, 1e6), seconds=(1e-5, 1e-3))


def ranks_of(computes_on="device"):
    program = [[compute(100.0), meet("g", 50.0)] for _ in range(2)]
    played = play(Job(world=2, groups={"g": (0, 1)}, steps=[program] * 3))
    return [replace(r, computes_on=computes_on) for r in played]


def job_on(cluster):
    return SimpleNamespace(cluster=cluster, stack="default")


def machine():
    """A cluster that was measured as a whole."""
    plain = catalogue.cluster("H100:2", nodes=1)
    _, matmul, _ = efficiency.matmul_curve(plain.gpu, "bf16")
    attention, _ = efficiency.attention_curve(plain.gpu, "bf16")
    launch_s = float(efficiency.memory_bound_s(plain.gpu, 0.0))
    from meshwright.hardware.measured import MemoryCurve

    curves = Curves(
        date="2026-11-30",
        source="a test",
        matmul={"bf16": matmul},
        attention={"bf16": attention},
        memory=MemoryCurve(launch_s=launch_s, memory=0.8),
        pieces={name: Piece(forward=CURVE, backward=CURVE) for name in OPERATORS},
    )
    return replace(plain, gpu=replace(plain.gpu, curves=curves), overheads=Overheads(step_s=0.02))


def test_without_a_plan_there_is_nothing_beside_it():
    assert beside_plan(ranks_of(), None, PROMISES) is None
    assert beside_plan(ranks_of(), job_on(catalogue.cluster("H100:2", nodes=1)), ()) is None


def test_pieces_and_the_hosts_time_of_a_measured_machine():
    base = machine()
    made = calibration(ranks_of("host"), None, gpu=base.gpu, job=job_on(base), promises=PROMISES)
    _, curve, _ = efficiency.matmul_curve(base.gpu, "bf16")
    made = replace(made, matmul={"bf16": curve})
    found = cluster_from_table(tomllib.loads(cluster_text(made, base=base)))
    assert not found.gpu.curves.partial
    assert found.gpu.curves.pieces["norm"].forward.seconds == (2.5e-5, 2.5e-3)
    assert found.overheads.step_s == pytest.approx(0.02 + 0.03)
    assert found.gpu.curves.memory == base.gpu.curves.memory


def test_passes_over_memory_of_a_device_of_the_catalogue():
    base = catalogue.cluster("H100:2", nodes=1)
    made = calibration(ranks_of(), None, gpu=base.gpu, job=job_on(base), promises=PROMISES)
    _, curve, _ = efficiency.matmul_curve(base.gpu, "bf16")
    found = cluster_from_table(
        tomllib.loads(cluster_text(replace(made, matmul={"bf16": curve}), base=base))
    )
    _, before = fits_of(job_on(base), default_calibration())
    _, after = fits_of(job_on(found), default_calibration())
    assert after.elementwise == pytest.approx(2.5 * before.elementwise)
    assert made.beside_plan.host_s is None  # kernels hide the host


def test_an_impossible_ratio_is_no_measure():
    far = (replace(PROMISES[1], measured_s=5.0),)
    assert (
        beside_plan(ranks_of(), job_on(catalogue.cluster("H100:2", nodes=1)), far).between is None
    )


def test_a_run_on_cpus_does_not_calibrate_a_gpu():
    with pytest.raises(MeshwrightError, match="computed on CPUs") as raised:
        calibration(ranks_of("host"), None, gpu=catalogue.gpu("H100"))
    assert "meshwright calibrate" in raised.value.hint
