"""Cluster files from traces of a run: what they do not know stays as the catalogue has it."""

import copy
from dataclasses import replace

import pytest

from meshwright.cost import collectives
from meshwright.cost.calibration import default_calibration, fits_of
from meshwright.cost.predict import predict
from meshwright.hardware import efficiency
from meshwright.hardware.table import InvalidCluster, cluster_from_table
from meshwright.model.config import model_from_config
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan

MATMUL = {"launch_s": 3e-6, "rate": 0.4, "m0": 30.0, "n0": 1.0, "k0": 100.0, "memory": 0.8}
ATTENTION = {
    "launch_s": 1e-5,
    "rate": 0.3,
    "rows0": 1.0,
    "keys0": 60.0,
    "head_dim0": 20.0,
    "backward": 0.9,
}
TABLE = {
    "nodes": 2,
    "gpus_per_node": 8,
    "gpu": {"like": "H100"},
    "links": [
        {"kind": "nvlink", "domain": 8, "gb_per_s": 450.0, "latency_us": 3.0},
        {"kind": "infiniband", "domain": 16, "gb_per_s": 50.0, "latency_us": 8.0},
    ],
    "measured": {"date": "2026-11-30", "source": "traces", "partial": True},
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
}


def made(**measured):
    table = copy.deepcopy(TABLE)
    table["measured"] |= measured
    return cluster_from_table(table)


def job_on(machine, **plan):
    return Job(
        model=model_from_config(LLAMA),
        cluster=machine,
        workload=Workload(global_batch_size=32, seq_len=4096),
        plan=Plan(tp=2, dp=8, **plan),
    )


def test_nothing_measured_is_the_catalogue():
    plain = replace(made().gpu, curves=None)
    for what in ("matmul", "attention", "memory", "experts"):
        assert efficiency.evidence(made().gpu, what) == efficiency.evidence(plain, what)
    bare = made()
    bare = replace(bare, gpu=plain)
    assert predict(job_on(made())).step_time_s == predict(job_on(bare)).step_time_s


def test_measured_products_leave_the_rest_alone():
    known, plain = made(matmul={"bf16": MATMUL}), made()
    big = (8192, 8192, 8192)
    slow = efficiency.matmul_s(known.gpu, "bf16", *big)
    assert slow == pytest.approx(2 * 8192**3 / (0.4 * 989e12), rel=0.05)
    assert slow > 1.5 * efficiency.matmul_s(plain.gpu, "bf16", *big)
    assert efficiency.memory_bound_s(known.gpu, 1e9) == efficiency.memory_bound_s(plain.gpu, 1e9)
    hardware, stack = fits_of(job_on(known), default_calibration())
    fitted, same = fits_of(job_on(plain), default_calibration())
    assert (hardware.matmul, hardware.of_attention) == (1.0, fitted.matmul)
    assert (hardware.memory, hardware.scale_up, stack) == (fitted.memory, fitted.scale_up, same)
    assert predict(job_on(known)).step_time_s > predict(job_on(plain)).step_time_s


def test_measured_attention_is_taken_as_it_stands():
    known = made(attention={"bf16": ATTENTION})
    hardware, stack = fits_of(job_on(known), default_calibration())
    assert hardware.of_attention == stack.attention == 1.0
    assert efficiency.evidence(known.gpu, "attention") == "measured"


def test_a_measured_collective_is_not_scaled_and_the_others_are():
    curve = {"launch_s": 1e-5, "step_s": 0.0, "rate": 0.5, "ramp_s": 0.0}
    known = made(collectives={"all_reduce": curve}, shares={"tp_rate": 1.0})
    plain = made()
    group, same = (collectives.place(c, 8, 1, scale_up=0.5) for c in (known, plain))
    moved = 1e9 * 2 * 7 / 8
    assert collectives.all_reduce_s(group, 1e9) == pytest.approx(1e-5 + moved / (450e9 * 0.5))
    assert collectives.all_to_all_s(group, 1e9) == collectives.all_to_all_s(same, 1e9)
    assert collectives.gather_parameters_s(group, 1e9) == collectives.gather_parameters_s(same, 1e9)


def test_shares_replace_the_fitted_ones():
    known = made(shares={"scale_out": 0.31, "overlap_pp": 0.11})
    hardware, stack = fits_of(job_on(known), default_calibration())
    assert (hardware.scale_out, stack.overlap_pp) == (0.31, 0.11)
    with pytest.raises(InvalidCluster, match=r"measured\.shares\.overlap"):
        made(shares={"overlap": 0.5})


def test_a_table_that_is_not_partial_is_whole():
    with pytest.raises(InvalidCluster, match=r"measured\.attention.*is missing"):
        made(matmul={"bf16": MATMUL}, partial=False)


def test_evidence_is_checked():
    told = {"what": "matmul bf16", "points": 12, "spread": 0.1, "confidence": "high", "source": "a"}
    assert made(matmul={"bf16": MATMUL}, evidence=[told]).gpu.curves.partial
    with pytest.raises(InvalidCluster, match=r"measured\.evidence\.0\.points"):
        made(evidence=[told | {"points": "many"}])


def test_what_calibrate_leaves_out_is_one():
    """Files are written without values that are the default's."""
    table = copy.deepcopy(TABLE)
    table["measured"] |= {"matmul": {"bf16": MATMUL}}
    curves = cluster_from_table(table).gpu.curves
    assert (curves.ranks, curves.threads) == (1, 1)
