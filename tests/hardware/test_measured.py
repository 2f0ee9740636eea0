"""Cluster files that carry measurements: read, refused, and honoured by the cost model."""

import copy
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.encode import to_toml
from meshwright.cost.calibration import Stack, default_calibration, fits_of
from meshwright.cost.layers import layer_times
from meshwright.cost.predict import predict
from meshwright.hardware import efficiency
from meshwright.hardware.measured import OPERATORS, OperatorCurve, Overheads
from meshwright.hardware.measured_table import COLLECTIVES
from meshwright.hardware.table import InvalidCluster, cluster_from_table
from meshwright.model.config import model_from_config
from meshwright.plan.file import parse_job, write_job
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan

POINTS = {"elements": [1e4, 1e6, 1e7], "seconds": [1e-5, 5e-4, 2e-2]}
COLLECTIVE = {"launch_s": 2e-4, "step_s": 0.0, "rate": 0.2, "ramp_s": 1e-6}
TABLE = {
    "name": "two ranks",
    "nodes": 1,
    "gpus_per_node": 2,
    "gpu": {
        "name": "a CPU",
        "generation": "cpu",
        "memory_gib": 8,
        "memory_gb_per_s": 15.0,
        "peak_tflops": {"fp32": 0.1},
    },
    "links": [{"kind": "memory", "domain": 2, "gb_per_s": 5.0, "latency_us": 25.0}],
    "measured": {
        "date": "2026-11-30",
        "source": "meshwright calibrate: a test",
        "ranks": 2,
        "threads": 1,
        "matmul": {
            "fp32": {
                "launch_s": 2e-6,
                "rate": 0.9,
                "m0": 10.0,
                "n0": 1.0,
                "k0": 10.0,
                "memory": 0.5,
                "output_bytes": 4.0,
            }
        },
        "attention": {
            "fp32": {
                "launch_s": 1e-6,
                "rate": 0.5,
                "rows0": 1.0,
                "keys0": 60.0,
                "head_dim0": 20.0,
                "backward": 0.9,
            }
        },
        "memory": {"launch_s": 1e-6, "memory": 1.0},
        "pieces": {name: {"forward": POINTS, "backward": POINTS} for name in OPERATORS},
        "alone": {"matmul": 1.2, "memory": 1.5},
        "collectives": dict.fromkeys(COLLECTIVES, COLLECTIVE),
        "overheads": {"host_serial": True, "host_layer_s": 1e-3, "host_backward": 0.5},
    },
}
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 256,
}
EXACT = {"precision": 0, "param_bytes": 4, "master_weights": False}


def table(**changes):
    """A copy of TABLE with values at dotted keys changed; None takes the key out."""
    made = copy.deepcopy(TABLE)
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        inner = made
        for step in path:
            inner = inner[step]
        inner.pop(last) if value is None else inner.__setitem__(last, value)
    return made


def job(cluster, **plan):
    return Job(
        model=model_from_config(TINY),
        cluster=cluster,
        workload=Workload(seq_len=64, global_batch_size=8),
        plan=Plan(**EXACT, **plan),
    )


def keys(given_table):
    with pytest.raises(InvalidCluster) as caught:
        cluster_from_table(given_table)
    return {problem.key for problem in caught.value.problems}


def test_a_file_reads_to_curves_links_and_overheads():
    cluster = cluster_from_table(tomllib.loads(to_toml(TABLE)))
    assert cluster.gpu.curves.matmul["fp32"].rate == 0.9
    assert cluster.gpu.curves.pieces["norm"].forward.seconds == (1e-5, 5e-4, 2e-2)
    assert cluster.links[0].curves["send"].launch_s == 2e-4
    assert cluster.overheads.host_backward == 0.5
    assert efficiency.evidence(cluster.gpu, "matmul", "fp32") == "measured"
    assert efficiency.link_evidence(cluster.links[0]) == "measured"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"measured__date": 5}, "measured.date"),
        ({"measured__ranks": 0}, "measured.ranks"),
        ({"measured__rnks": 2}, "measured.rnks"),
        ({"measured__memory": None}, "measured.memory"),
        ({"measured__matmul": {}}, "measured.matmul"),
        ({"measured__matmul__fp32__rate": -1.0}, "measured.matmul.fp32.rate"),
        ({"measured__matmul__fp32__rate": float("nan")}, "measured.matmul.fp32.rate"),
        ({"measured__pieces__norm": None}, "measured.pieces.norm"),
        ({"measured__pieces__norm__forward": 3}, "measured.pieces.norm.forward"),
        ({"measured__collectives__send": None}, "measured.collectives.send"),
        ({"measured__overheads__host_serial": 1}, "measured.overheads.host_serial"),
        ({"measured": [1]}, "measured"),
        ({"gpu": "H100:8", "gpus_per_node": None}, "measured"),
    ],
)
def test_what_is_wrong_is_named(change, key):
    assert key in keys(table(**change))


@pytest.mark.parametrize("elements", [[], [1.0], [2.0, 1.0, 3.0]])
def test_points_must_pair_and_grow(elements):
    curve = {"elements": elements, "seconds": [1.0, 2.0, 3.0]}
    found = keys(table(measured__pieces__loss__backward=curve))
    assert found == {"measured.pieces.loss.backward.elements"}


def test_a_plan_file_keeps_the_measurements():
    cluster = cluster_from_table(TABLE)
    mine = job(cluster, dp=2, zero_stage=3)
    assert parse_job(write_job(mine)).cluster == cluster


@given(st.floats(1.0, 1e9), st.floats(1.0, 10.0))
def test_more_elements_never_take_less(elements, factor):
    curve = OperatorCurve(elements=(1e3, 1e5, 1e7), seconds=(1e-6, 1e-5, 1e-2))
    assert curve.at(elements * factor) >= curve.at(elements)


def test_beyond_the_last_point_time_is_proportional():
    curve = OperatorCurve(elements=(1.0, 10.0), seconds=(1.0, 5.0))
    assert curve.at(np.array([0.5, 10.0, 30.0])).tolist() == [1.0, 5.0, 15.0]


def test_overheads_are_parameters_of_a_stack():
    stack = {f.name for f in fields(Stack)}
    assert {f.name for f in fields(Overheads)} - {"overlap"} <= stack


def test_a_host_that_computes_itself_adds_its_time():
    cluster = cluster_from_table(TABLE)
    idle = replace(cluster, overheads=replace(cluster.overheads, host_layer_s=0.0))
    with_host = layer_times(job(cluster, dp=2), default_calibration()).kinds[0]
    without = layer_times(job(idle, dp=2), default_calibration()).kinds[0]
    assert float(with_host.forward_s - without.forward_s) == pytest.approx(1e-3)
    assert float(with_host.backward_s - without.backward_s) == pytest.approx(0.5e-3)


def test_fewer_ranks_are_as_fast_as_measured_alone():
    two = cluster_from_table(TABLE)
    one = replace(two, num_gpus=1, gpus_per_node=1)
    busy, _ = fits_of(job(two, dp=2), default_calibration())
    alone, _ = fits_of(job(one), default_calibration())
    assert (busy.matmul, busy.memory) == (1.0, 1.0)
    assert (alone.matmul, alone.memory) == (1.2, 1.5)


def test_other_stacks_keep_their_own_overheads():
    mine = job(cluster_from_table(TABLE), dp=2)
    _, own = fits_of(mine, default_calibration())
    _, other = fits_of(replace(mine, stack="megatron"), default_calibration())
    assert own.host_serial
    assert other == default_calibration().stack("megatron")


def test_terms_say_that_they_were_measured_here():
    terms = predict(job(cluster_from_table(TABLE), dp=2, zero_stage=3)).terms
    assert terms["time.communication.fsdp"].evidence == "measured"
    assert "calibrate: a test, 2026-11-30" in terms["time.compute.matmul"].source
    assert terms["time.bubble"].evidence == "exact"


@pytest.mark.parametrize(
    ("plan", "term"),
    [
        ({"dp": 2, "zero_stage": 3}, "time.communication.fsdp"),
        ({"dp": 2, "zero_stage": 0}, "time.communication.dp"),
        ({"tp": 2}, "time.communication.tp"),
        ({"pp": 2}, "time.communication.pp"),
        ({"cp": 2}, "time.communication.cp"),
    ],
)
def test_a_slower_link_shows_where_the_axis_communicates(plan, term):
    slower = dict.fromkeys(COLLECTIVES, COLLECTIVE | {"rate": 0.002})
    fast = predict(job(cluster_from_table(TABLE), **plan)).terms[term].value
    slow = predict(job(cluster_from_table(table(measured__collectives=slower)), **plan))
    assert slow.terms[term].value > 1.5 * fast


def test_columns_equal_their_rows():
    cluster = cluster_from_table(TABLE)
    sizes = np.array([1, 2, 4])
    column = layer_times(job(cluster, dp=2, micro_batch_size=sizes), default_calibration())
    for index, size in enumerate(sizes):
        one = layer_times(job(cluster, dp=2, micro_batch_size=int(size)), default_calibration())
        assert column.kinds[0].forward_s[index] == pytest.approx(float(one.kinds[0].forward_s))
        assert column.head.backward_s[index] == pytest.approx(float(one.head.backward_s))
