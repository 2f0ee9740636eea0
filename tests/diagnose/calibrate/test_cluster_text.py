"""From traces to a cluster file that the cost model reads."""

from __future__ import annotations

import copy
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from jobs import Job, Op, compute, meet, play
from meshwright.base.errors import MeshwrightError
from meshwright.cost import collectives
from meshwright.diagnose.across.join import across
from meshwright.diagnose.calibrate import calibration, cluster_text
from meshwright.diagnose.rank import Collective, Matmuls
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.read import read_trace
from meshwright.hardware import catalogue, efficiency
from meshwright.hardware.table import cluster_from_table

FOLDER = Path(__file__).parents[4] / "shared/traces/public"
ALPHA_US, GB_PER_S = 25.0, 180.0


def transfer_us(elements, ranks):
    return ALPHA_US + 2 * (ranks - 1) / ranks * elements * 2 / (GB_PER_S * 1e3)


def reducing(*, late_us=0.0, sizes=(1_000_000, 30_000_000), ranks=4, times=12, **given):
    """All-reduces of a few sizes, to which one rank comes `late_us` after the others."""

    def rank(r):
        ops = []
        for size in sizes:
            for _ in range(times):
                ops += [compute(50.0 + (late_us if r == 1 else 0.0))]
                ops += [meet("g", transfer_us(size, ranks), elements=size)]
        return ops

    members = {"g": tuple(range(ranks))}
    return Job(world=ranks, groups=members, steps=[[rank(r) for r in range(ranks)]], **given)


def read(text):
    return cluster_from_table(tomllib.loads(text))


def test_latency_and_rate_of_a_link_are_found_again():
    ranks = play(reducing(hosts=dict.fromkeys(range(4), "a")))
    made = calibration(ranks, across(ranks))
    assert {(t.kind, t.size, t.nodes, t.points) for t in made.transfers} == {
        ("all_reduce", 4, 1, 12)
    }
    cluster = read(cluster_text(made))
    assert cluster.gpu.curves.partial
    group = collectives.place(cluster, 4, 1, scale_up=0.5)
    for size in (1_000_000, 8_000_000, 30_000_000):
        expected = transfer_us(size, 4) * 1e-6
        assert float(collectives.all_reduce_s(group, 2.0 * size)) == pytest.approx(
            expected, rel=0.03
        )
    plain = replace(cluster.links[0], curves=None)
    assert efficiency.collective_s(cluster.links[0], "all_to_all", 1e8, 4) == (
        efficiency.collective_s(plain, "all_to_all", 1e8, 4)
    )


def test_collectives_that_ranks_come_to_late_calibrate_nothing():
    ranks = play(reducing(late_us=300.0))
    made = calibration(ranks, across(ranks))
    assert {t.bytes for t in made.transfers} == set()
    assert made.left[-1].count == 24
    with pytest.raises(MeshwrightError, match="calibrate nothing"):
        cluster_text(made)


def test_fewer_than_ten_are_no_measurement():
    ranks = play(reducing(times=9))
    assert calibration(ranks, across(ranks)).transfers == ()


def test_the_network_between_nodes():
    """64 MB over two ranks of each of two nodes, at 70 % of the fabric's rate."""
    base = catalogue.cluster("H100:2", nodes=2)
    outer, size = base.links[-1], 32_000_000
    moved = 2 * 3 / 4 * 2.0 * size
    seconds = moved / (2 * outer.bytes_per_s * 0.7) + 2 * 3 * outer.latency_s
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    job = reducing(sizes=(size,), hosts=hosts)
    for step in job.steps:
        for ops in step:
            for op in ops:
                op.us = seconds * 1e6 if op.kind == "meet" else op.us
    ranks = play(job)
    made = calibration(ranks, across(ranks))
    cluster = read(cluster_text(made, base=base))
    assert cluster.shares["scale_out"] == pytest.approx(0.7, rel=0.02)
    assert cluster.shares["dp_rate"] == 1.0
    assert cluster.links[0].curves is None


def with_products(made):
    """A file is written for curves of kernels or of collectives; give it products."""
    _, curve, _ = efficiency.matmul_curve(made.gpu, "bf16")
    return replace(made, matmul={"bf16": curve})


def test_one_rank_alone_is_used_with_low_confidence_and_says_so():
    (rank,) = play(reducing(hosts=dict.fromkeys(range(4), "a")))[:1]
    alone = Collective(
        collective="allreduce",
        pg_name="g",
        pg_desc="",
        pg_ranks="[0, 1, 2, 3]",
        group_size=4,
        dtype="BFloat16",
        in_nelems=30_000_000,
        out_nelems=30_000_000,
        count=12,
        sum_us=12 * 600.0,
        min_us=500.0,
        median_us=600.0,
        exposed_us=0.0,
        bytes=60_000_000,
        busbw_GBps_at_median=None,
        busbw_GBps_at_min=None,
    )
    made = calibration([replace(rank, collectives=(alone,))], None)
    (transfer,) = made.transfers
    assert (transfer.confidence, transfer.seconds) == ("low", 500e-6)
    assert "may contain waits" in cluster_text(made)


def test_an_own_cluster_stays_whole():
    """What `meshwright calibrate` measured is kept but for what the traces tell."""
    from meshwright.hardware.measured_table import COLLECTIVES

    curve = {"launch_s": 2e-4, "step_s": 0.0, "rate": 0.2, "ramp_s": 1e-6}
    base = read(cluster_text(with_products(calibration(play(reducing()), None))))
    whole = replace(base, gpu=replace(base.gpu, curves=None))
    table = copy.deepcopy(
        tomllib.loads(cluster_text(with_products(calibration(play(reducing()), None))))
    )
    table["measured"]["collectives"] = dict.fromkeys(COLLECTIVES, curve)
    base = cluster_from_table(table)
    ranks = play(reducing(hosts=dict.fromkeys(range(4), "a")))
    made = read(cluster_text(calibration(ranks, across(ranks)), base=base))
    assert made.links[0].curves["all_to_all"].launch_s == 2e-4
    assert made.links[0].curves["all_reduce"].launch_s == pytest.approx(ALPHA_US * 1e-6, rel=0.05)
    assert made.gpu.curves.matmul == base.gpu.curves.matmul
    assert whole.gpu.name == made.gpu.name


def test_hidden_transfers_become_overlaps():
    program = [[compute(100.0), meet("t", 200.0), compute(100.0)]] * 2
    job = Job(
        world=2,
        groups={"t": (0, 1)},
        descriptions={"t": "TENSOR_MODEL_PARALLEL_GROUP"},
        steps=[program] * 12,
    )
    ranks = play(job)
    half = [
        replace(r, instances=replace(r.instances, exposed_ns=r.instances.exposed_ns // 4))
        for r in ranks
    ]
    made = calibration(half, across(half))
    assert made.hidden["tp"] == pytest.approx(0.75)
    assert read(cluster_text(made)).shares["overlap_tp"] == pytest.approx(0.75)


def test_a_device_of_no_catalogue_needs_the_plan_that_ran():
    ranks = play(reducing(gpu="Nonesuch 9000", hosts=dict.fromkeys(range(4), "a")))
    made = calibration(ranks, across(ranks))
    with pytest.raises(MeshwrightError, match="in no catalogue") as raised:
        cluster_text(made)
    assert "--plan" in raised.value.hint
    base = catalogue.cluster("H100:4", nodes=1)
    assert read(cluster_text(made, base=base)).gpu.name == base.gpu.name


@pytest.mark.parametrize(
    ("folder", "tflops", "peak"),
    [
        ("tracelens-h100-qwen1.5-0.5b", 622.5, 989.0),
        ("tracelens-mi300x-qwen1.5-0.5b", 473.5, 1307.0),
    ],
)
def test_real_traces(folder, tflops, peak):
    if not (FOLDER / folder).is_dir():
        pytest.skip(f"the real traces are not at {FOLDER}")
    (file,) = (FOLDER / folder).glob("Qwen*.json.gz")
    rank = rank_of(read_trace(file))
    made = calibration([rank], None)
    cluster = read(cluster_text(made))
    shapes = [s for s in rank.gemm.shapes if s.batch == 1 and s.count >= 10]
    seconds = sum(
        s.count * float(efficiency.matmul_s(cluster.gpu, "bf16", s.m, s.n, s.k)) for s in shapes
    )
    work = sum(2.0 * s.m * s.n * s.k * s.count for s in shapes)
    assert work / seconds / 1e12 == pytest.approx(tflops, rel=0.01)
    told = next(c for c in made.coefficients if c.what == "matmul bf16")
    assert told.values["share_of_peak"] == pytest.approx(tflops / peak, rel=0.01)
    assert (told.points, told.confidence) == (168, "high")


def test_without_shapes_and_collectives_nothing_is_written():
    (rank,) = play(Job(world=1, groups={}, steps=[[[Op("compute", 10.0)]]]))
    empty = Matmuls(
        ops=0, ops_without_kernel=0, kernel_us=0.0, tflop=0.0, mean_tflops=0.0, shapes=()
    )
    with pytest.raises(MeshwrightError, match="calibrate nothing"):
        cluster_text(calibration([replace(rank, gemm=empty)], None))
