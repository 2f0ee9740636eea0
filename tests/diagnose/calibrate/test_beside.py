"""What only the plan that ran gives a measure for."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from jobs import Job, compute, meet, play
from meshwright.base.errors import MeshwrightError
from meshwright.cost.calibration import default_calibration, fits_of
from meshwright.cost.predict import predict
from meshwright.diagnose.calibrate import calibration, cluster_text
from meshwright.diagnose.calibrate.beside import beside_plan
from meshwright.diagnose.diagnosis import Promise
from meshwright.hardware import catalogue, efficiency
from meshwright.hardware.measured import (
    OPERATORS,
    Curves,
    MemoryCurve,
    OperatorCurve,
    Overheads,
    Piece,
)
from meshwright.hardware.table import cluster_from_table
from meshwright.model.config import model_from_config
from meshwright.plan.job import Job as Run
from meshwright.plan.job import Workload
from meshwright.plan.plan import Plan

CURVE = OperatorCurve(elements=(1e4, 1e6), seconds=(1e-5, 1e-3))


def ranks_of(computes_on="device"):
    program = [[compute(100.0), meet("g", 50.0)] for _ in range(2)]
    played = play(Job(world=2, groups={"g": (0, 1)}, steps=[program] * 3))
    return [replace(r, computes_on=computes_on) for r in played]


LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "vocab_size": 32000,
}


def job_on(cluster):
    return Run(
        model=model_from_config(LLAMA),
        cluster=cluster,
        workload=Workload(global_batch_size=8, seq_len=1024),
        plan=Plan(dp=2),
    )


def promises_of(job, *, between=2.5, update=1.0, host_s=0.03):
    """Promises of a run whose kernels between products took `between` times as long, and so on."""
    terms = predict(job).terms
    pieces_s, optimizer_s = (
        terms[f"time.{name}"].value for name in ("compute.elementwise", "optimizer")
    )
    both_s = pieces_s * between + optimizer_s * update
    share = optimizer_s * update / both_s
    found = (
        Promise(
            term="time.compute.elementwise + optimizer",
            predicted_s=pieces_s + optimizer_s,
            measured_s=both_s,
        ),
        Promise(term="time.compute.host + fixed", predicted_s=0.01, measured_s=0.01 + host_s),
    )
    return found, {"elementwise": 1e6 * (1 - share), "optimizer": 1e6 * share, "gemm": 7e6}


def machine():
    """A cluster that was measured as a whole."""
    plain = catalogue.cluster("H100:2", nodes=1)
    _, matmul, _ = efficiency.matmul_curve(plain.gpu, "bf16")
    attention, _ = efficiency.attention_curve(plain.gpu, "bf16")
    launch_s = float(efficiency.memory_bound_s(plain.gpu, 0.0))
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
    job = job_on(catalogue.cluster("H100:2", nodes=1))
    promises, _ = promises_of(job)
    assert beside_plan(ranks_of(), None, promises) is None
    assert beside_plan(ranks_of(), job, ()) is None


def calibrated(job, computes_on="device", **given):
    promises, sums = promises_of(job, **given)
    ranks = [replace(r, kernel_class_sum_us=sums) for r in ranks_of(computes_on)]
    made = calibration(ranks, None, gpu=job.cluster.gpu, job=job, promises=promises)
    _, curve, _ = efficiency.matmul_curve(job.cluster.gpu, "bf16")
    made = replace(made, matmul={"bf16": curve})
    return made, cluster_from_table(tomllib.loads(cluster_text(made, base=job.cluster)))


def test_pieces_and_the_hosts_time_of_a_measured_machine():
    base = machine()
    _, found = calibrated(job_on(base), "host", between=2.5, update=3.0)
    assert not found.gpu.curves.partial
    pieces = found.gpu.curves.pieces
    assert pieces["norm"].forward.seconds == pytest.approx((2.5e-5, 2.5e-3), rel=1e-4)
    assert pieces["update"].forward.seconds == pytest.approx((3e-5, 3e-3), rel=1e-4)
    assert found.overheads.step_s == pytest.approx(0.02 + 0.03)
    assert found.gpu.curves.memory == base.gpu.curves.memory


def test_the_stack_of_a_device_of_the_catalogue():
    job = job_on(catalogue.cluster("H100:2", nodes=1))
    _, found = calibrated(job, between=2.5, update=0.5, host_s=-0.004)
    _, before = fits_of(job, default_calibration())
    _, after = fits_of(replace(job, cluster=found), default_calibration())
    assert after.elementwise == pytest.approx(2.5 * before.elementwise, rel=1e-3)
    assert after.optimizer == pytest.approx(2.0 * before.optimizer, rel=1e-3)
    assert after.step_s == pytest.approx(before.step_s - 0.004, rel=1e-3)
    terms, told = predict(job).terms, predict(replace(job, cluster=found)).terms
    optimizer = "time.optimizer"
    assert told[optimizer].value == pytest.approx(0.5 * terms[optimizer].value, rel=0.01)


def test_an_impossible_ratio_is_no_measure():
    made, _ = calibrated(job_on(catalogue.cluster("H100:2", nodes=1)), between=50.0)
    assert made.beside_plan.between is None
    assert made.beside_plan.update == pytest.approx(1.0)


def test_a_run_on_cpus_does_not_calibrate_a_gpu():
    with pytest.raises(MeshwrightError, match="computed on CPUs") as raised:
        calibration(ranks_of("host"), None, gpu=catalogue.gpu("H100"))
    assert "meshwright calibrate" in raised.value.hint
