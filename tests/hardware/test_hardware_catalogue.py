"""GPUs and clusters by name."""

import subprocess
import sys

import pytest

from meshwright.base.errors import MeshwrightError, UnknownName
from meshwright.hardware import catalogue
from meshwright.hardware.cluster import members_within

RUN_SPELLINGS = [
    "A100-40G-SXM",
    "A100-80G-SXM",
    "A100-80G-SXM (Ampere, size not stated)",
    "Ascend-910B-64G",
    "B200",
    "B300",
    "GB200",
    "GB300",
    "H100-80G-SXM",
    "H200-141G-SXM",
    "H800-80G-SXM",
    "L40S",
    "MI300X",
    "MI325X",
    "MI350X",
    "MI355X",
    "RTX A6000",
    "RTX4090",
    "TPU v3",
    "TPU v4",
    "TPU v5e",
    "TPU v5p",
    "TPU v6e",
    "TPU7x (Ironwood, 2 devices per chip)",
    "V100-32G-SXM2",
    "V100-32G-SXM3 (DGX-2)",
]


@pytest.mark.parametrize("spelling", RUN_SPELLINGS)
def test_spellings_of_the_published_runs(spelling):
    assert catalogue.gpu(spelling).peak_flops


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("H100", "H100-80G-SXM"),
        ("h100", "H100-80G-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-80G-SXM"),
        ("A100-80GB", "A100-80G-SXM"),
        ("NVIDIA A100 80GB PCIe", "A100-80G-PCIe"),
        ("rtx 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("tpu-v5litepod", "TPU-v5e"),
    ],
)
def test_aliases(spelling, name):
    assert catalogue.gpu(spelling).name == name


def test_ambiguous_name_lists_both():
    with pytest.raises(MeshwrightError) as caught:
        catalogue.gpu("A100")
    assert "A100-40GB or A100-80GB" in caught.value.hint


def test_unknown_name_suggests():
    with pytest.raises(UnknownName) as caught:
        catalogue.cluster("H10O:8", nodes=1)
    assert caught.value.suggestions[0] == "H100"


@pytest.mark.parametrize("name", catalogue.names())
def test_short_names_lead_back(name):
    assert catalogue.gpu(name).name in {d["full_name"] for d in catalogue.describe()}


def test_plain_node_and_fabric():
    cluster = catalogue.cluster("H100:8", nodes=8)
    assert (cluster.num_gpus, cluster.gpus_per_node, cluster.num_nodes) == (64, 8, 8)
    inner, outer = cluster.links
    assert (inner.kind, inner.domain, inner.bytes_per_s) == ("nvlink", 8, 450e9)
    assert (outer.kind, outer.domain, outer.bytes_per_s) == ("infiniband", 64, 50e9)
    assert outer.nics_per_node == 8


def test_one_node_has_no_network():
    assert len(catalogue.cluster("H100:8", nodes=1).links) == 1


def test_fewer_nics_than_gpus_share_the_rate():
    cluster = catalogue.cluster("A100-80GB:8", nodes=4, node="jean-zay-a100")
    assert cluster.links[1].bytes_per_s == pytest.approx(4 * 100e9 / 8 / 8)
    half = catalogue.cluster("A100-80GB:4", nodes=4, node="jean-zay-a100")
    assert half.links[1].bytes_per_s == pytest.approx(100e9 / 8)


def test_more_nics_than_gpus_add_up():
    cluster = catalogue.cluster("H100:8", nodes=4, node="aws-p5")
    assert cluster.links[1].bytes_per_s == pytest.approx(3200e9 / 8 / 8)


def test_rack_of_72_and_beyond():
    rack = catalogue.cluster("GB200:4", nodes=18)
    assert (rack.num_gpus, rack.gpus_per_node, rack.links[0].domain) == (72, 4, 72)
    assert len(rack.links) == 1
    several = catalogue.cluster("GB200:4", nodes=128)
    assert several.links[0].domain == 64  # powers of two across racks
    assert several.links[1].domain == 512
    larger = catalogue.cluster("GB300:4", nodes=144, node="nvl576")
    assert larger.links[0].domain == 576


def test_count_beyond_the_host_is_the_part_of_the_domain_in_use():
    racks = catalogue.cluster("GB200:72", nodes=2)
    assert (racks.num_gpus, racks.links[0].domain) == (144, 72)
    slices = catalogue.cluster("TPU v5p:64", nodes=4)
    assert (slices.num_gpus, slices.links[0].domain, slices.gpus_per_node) == (256, 64, 4)


def test_pairs_inside_a_pcie_box():
    cluster = catalogue.cluster("RTX3090:8", nodes=2)
    assert [link.domain for link in cluster.links] == [2, 8, 16]
    rates = [link.bytes_per_s for link in cluster.links]
    assert rates == sorted(rates, reverse=True)


def test_oversubscribed_tree_has_two_levels():
    cluster = catalogue.cluster("H100:8", nodes=128, fabric="ib-ndr-400-rail-4to1")
    node, leaf, spine = cluster.links
    assert (node.domain, leaf.domain, spine.domain) == (8, 256, 1024)
    assert (leaf.oversubscription, spine.oversubscription) == (1.0, 4.0)
    small = catalogue.cluster("H100:8", nodes=16, fabric="ib-ndr-400-rail-4to1")
    assert len(small.links) == 2  # one leaf spans it


def test_single_gpu_nodes():
    cluster = catalogue.cluster("GH200", nodes=4)
    assert (cluster.num_gpus, cluster.gpus_per_node, cluster.links[0].domain) == (4, 1, 1)
    assert members_within(4, 1, cluster.links[0].domain) == 1


def test_a_node_that_fits_the_count_is_found():
    assert catalogue.cluster("V100-32GB:8", nodes=1).gpus_per_node == 8


@pytest.mark.parametrize(
    ("spec", "nodes", "more"),
    [
        ("H100:16", 1, {}),
        ("H100:0", 1, {}),
        ("", 1, {}),
        ("H100", 0, {}),
        ("GB200:6", 2, {}),
        ("H100:8", 2, {"node": "mi300x-x8"}),
        ("H100:8", 2, {"node": "no-such-node"}),
        ("H100:8", 2, {"fabric": "carrier pigeon"}),
    ],
)
def test_what_does_not_exist_is_refused_with_a_hint(spec, nodes, more):
    with pytest.raises(MeshwrightError) as caught:
        catalogue.cluster(spec, nodes=nodes, **more)
    assert caught.value.hint or isinstance(caught.value, UnknownName)


def test_describe_is_a_table_of_plain_values():
    rows = catalogue.describe()
    assert len(rows) == len(catalogue.names())
    assert all(row["memory_gib"] > 10 and row["memory_gb_per_s"] > 100 for row in rows)
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert all(isinstance(v, str | float | int | None) for row in rows for v in row.values())


def test_naming_a_gpu_reads_little():
    """A file name is read alone: no scan of the catalogue, no numpy-heavy import."""
    code = (
        "from meshwright.hardware import records\n"
        "records.record('gpus', 'h100')\n"
        "assert records._read.cache_info().currsize == 1\n"
        "import sys; assert 'scipy' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
