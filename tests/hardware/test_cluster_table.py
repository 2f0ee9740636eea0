"""Clusters from a user's own table or file."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.hardware.file import read_cluster
from meshwright.hardware.table import InvalidCluster, cluster_from_table

OWN = {
    "nodes": 4,
    "gpus_per_node": 8,
    "gpu": {
        "name": "X1",
        "memory_gib": 100,
        "memory_gb_per_s": 3000,
        "peak_tflops": {"bf16": 700},
    },
    "links": [
        {"kind": "nvlink", "domain": 8, "gb_per_s": 300},
        {"kind": "roce", "domain": 32, "gb_per_s": 25, "oversubscription": 2},
    ],
}


def keys(table):
    with pytest.raises(InvalidCluster) as caught:
        cluster_from_table(table)
    return {problem.key for problem in caught.value.problems}


def test_how_many_nodes_there_are_must_be_said():
    with pytest.raises(InvalidCluster, match="nodes there are, as nodes = 1"):
        cluster_from_table({"gpu": "H100:8"})


def test_by_name():
    cluster = cluster_from_table({"gpu": "H100:8", "nodes": 2, "price_per_gpu_hour": 1.5})
    assert cluster.num_gpus == 16
    assert cluster.price_per_gpu_hour == 1.5


def test_overrides_of_a_known_device():
    table = {"nodes": 2, "gpu": {"like": "H100", "memory_gib": 94, "peak_tflops": {"bf16": 800}}}
    gpu = cluster_from_table(table).gpu
    assert gpu.memory_bytes == 94 * 2**30
    assert gpu.peak_flops["bf16"] == 800e12
    assert gpu.peak_flops["fp8"] == 1979e12
    assert gpu.generation == "hopper"


def test_from_scratch():
    cluster = cluster_from_table(OWN)
    assert (cluster.num_gpus, cluster.gpus_per_node) == (32, 8)
    assert [link.bytes_per_s for link in cluster.links] == [300e9, 25e9]
    assert cluster.links[1].oversubscription == 2.0
    assert cluster.gpu.memory_bytes_per_s == 3e12


def test_everything_wrong_is_reported_at_once():
    found = keys(
        {
            "gpu": "H1000:8",
            "nodes": -3,
            "fabrik": "roce",
            "fabric": "smoke signals",
            "price_per_gpu_hour": "cheap",
            "links": [{"kind": "nvlnk", "domain": 8.5, "gb_per_s": math.nan}],
        }
    )
    assert found == {
        "gpu",
        "nodes",
        "fabrik",
        "fabric",
        "price_per_gpu_hour",
        "links.0.kind",
        "links.0.domain",
        "links.0.gb_per_s",
    }


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"nodes": True}, "nodes"),
        ({"nodes": 10**30}, "nodes"),
        ({"gpu": 7}, "gpu"),
        ({"gpu": {"name": "X"}}, "gpu.memory_gib"),
        ({"gpu": {"like": "H100", "memory_gib": math.inf}}, "gpu.memory_gib"),
        ({"links": []}, "links"),
        ({"links": {}}, "links"),
        ({"links": [1]}, "links.0"),
        ({"links": OWN["links"][::-1]}, "links"),
        ({"links": OWN["links"][:1]}, "links.0.domain"),
        ({"links": [{**OWN["links"][1], "oversubscription": 0.5}]}, "links.0.oversubscription"),
        ({"host": 3}, "host"),
        ({"host": {"cores": -1}}, "host.cores"),
    ],
)
def test_bad_value(change, key):
    assert key in keys({**OWN, **change})


def test_names_that_do_not_go_together():
    assert keys({"gpu": "H100:8", "nodes": 2, "node": "mi300x-x8"}) == {"gpu"}
    assert keys({"gpu": "H100:99", "nodes": 2}) == {"gpu"}


def test_file_places_the_problem(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('gpu = "H100:8"\nnodes = 2\n\n[host]\ncores = "many"\n')
    with pytest.raises(InvalidInput) as caught:
        read_cluster(path)
    (finding,) = caught.value.findings
    assert (finding.file, finding.line, finding.key) == (str(path), 5, "host.cores")


def test_file_may_nest_the_cluster(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\ngpu = "H100:8"\nnodes = 2\n')
    assert read_cluster(path).num_gpus == 16


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["like", "kind", "domain", "gb_per_s", "bf16", "cores", "x"]), inner
        )
    ),
    max_leaves=6,
)
names = ["gpu", "nodes", "node", "fabric", "links", "host", "price_per_gpu_hour", "name"]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(names), values))
def test_nonsense_is_refused_not_crashed_on(table):
    try:
        cluster = cluster_from_table({"gpu": "H100:8", "nodes": 2, **table})
    except InvalidCluster:
        return
    assert cluster.num_gpus >= 1
    assert all(link.bytes_per_s > 0 for link in cluster.links)
