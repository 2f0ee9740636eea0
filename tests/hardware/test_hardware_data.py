"""Every data file has the form that the catalogue reads, and figures that can be true."""

import re
from itertools import chain

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.hardware import catalogue
from meshwright.hardware.efficiency import _kin_table, _measured
from meshwright.hardware.records import prices, record, records, spellings

GPUS, NODES, FABRICS = (records(kind) for kind in ("gpus", "nodes", "fabrics"))
DATE = re.compile(r"^20\d\d-\d\d-\d\d$")
NARROWING = ("fp32", "tf32", "bf16", "fp8", "nvfp4")

# Dense bf16 (V100: fp16) TFLOP/s, memory GB and GB/s, scale-up GB/s a direction, from the hardware
# table of the published runs; devices whose row there is a range are left to the range test.
PUBLISHED = {
    "a100-40g": (312, 40, 1555, 300),
    "a100-80g": (312, 80, 2039, 300),
    "h100": (989, 80, 3350, 450),
    "h200": (989, 141, 4800, 450),
    "h800": (989, 80, 3350, 200),
    "h20": (148, 96, 4000, 450),
    "mi300x": (1307, 192, 5300, 448),
    "mi325x": (1307, 256, 6000, 448),
    "mi355x": (2500, 288, 8000, 535.5),
    "ascend-910b": (353.9, 64, 1759, 196),
    "tpu-v4": (275, 32, 1200, 270),
    "tpu-v5p": (459, 95, 2765, 540),
    "tpu-v6e": (918, 32, 1600, 360),
}


def ids(entries):
    return [e["slug"] for e in entries]


@pytest.mark.parametrize("gpu", GPUS, ids=ids(GPUS))
def test_gpu_file(gpu):
    assert gpu["name"]
    assert gpu["source"]
    assert DATE.match(gpu["date"])
    assert isinstance(gpu["checked"], bool)
    assert 0.9 <= gpu["memory_gib"] / (gpu["marketed_gb"] * 1e9 / 2**30) <= 1.08
    assert gpu["default_node"] in ids(NODES)
    peak = gpu["peak_tflops"]
    rates = [peak[p] for p in NARROWING if p in peak]
    assert rates == sorted(rates)  # a narrower type is never slower
    assert "bf16" in peak or "fp16" in peak


@pytest.mark.parametrize("gpu", GPUS, ids=ids(GPUS))
def test_ridge_point_is_that_of_an_accelerator(gpu):
    """FLOPs per byte at which compute and memory take equally long."""
    peak = gpu["peak_tflops"]
    ridge = peak.get("bf16", peak.get("fp16")) * 1e12 / gpu["memory_bytes_per_s"]
    assert 30 <= ridge <= 600


@pytest.mark.parametrize("node", NODES, ids=ids(NODES))
def test_node_file(node):
    assert node["source"]
    assert DATE.match(node["date"])
    assert set(node["gpus"]) <= set(ids(GPUS))
    assert node["default_fabric"] in ids(FABRICS)
    assert node["links"], "even a single GPU states its domain"
    domains = [link["domain"] for link in node["links"]]
    assert domains == sorted(set(domains))
    assert domains[-1] >= node["gpus_per_node"]
    rates = [link["bytes_per_s"] for link in node["links"]]
    assert rates == sorted(rates, reverse=True)  # the inner link is the faster
    for link in node["links"]:
        assert link["source"]
        assert 0 < link["latency_s"] < 1e-3
        peer = link.get("peer_bytes_per_s")
        if peer:  # a mesh: the links to the peers add up to at least the whole
            assert peer < link["bytes_per_s"] <= peer * (link["domain"] - 1)


@pytest.mark.parametrize("fabric", FABRICS, ids=ids(FABRICS))
def test_fabric_file(fabric):
    assert fabric["source"]
    assert DATE.match(fabric["date"])
    assert ("nics_per_gpu" in fabric) != ("nics_per_node" in fabric)
    assert 1 <= fabric["nic_gbit_per_s"] <= 1600
    assert fabric["levels"][-1]["domain_nodes"] == 0, "the outermost level has no bound"
    assert all(level["oversubscription"] >= 1 for level in fabric["levels"])
    latencies = [level["latency_s"] for level in fabric["levels"]]
    assert latencies == sorted(latencies)


@pytest.mark.parametrize("gpu", GPUS, ids=ids(GPUS))
def test_a_default_cluster_of_every_gpu(gpu):
    single = catalogue.cluster(gpu["slug"], nodes=1)
    node = record("nodes", gpu["default_node"])
    assert gpu["slug"] in node["gpus"]
    assert single.num_gpus == single.gpus_per_node == node["gpus_per_node"]
    many = catalogue.cluster(gpu["slug"], nodes=64)
    assert many.links[-1].domain >= many.num_gpus


@pytest.mark.parametrize("slug", PUBLISHED)
def test_figures_of_the_published_table(slug):
    tflops, gigabytes, memory, scale_up = PUBLISHED[slug]
    gpu = record("gpus", slug)
    link = catalogue.cluster(slug, nodes=1).links[0]
    assert gpu["peak_tflops"]["bf16"] == tflops
    assert gpu["marketed_gb"] == gigabytes
    assert gpu["memory_bytes_per_s"] == memory * 1e9
    assert link.bytes_per_s == pytest.approx(scale_up * 1e9)


@pytest.mark.parametrize("kind", ["gpus", "nodes", "fabrics"])
def test_spellings_are_unique(kind):
    owner = {}
    for entry in records(kind):
        for spelling in spellings(entry):
            key = "".join(c for c in spelling.lower() if c.isalnum())
            assert owner.setdefault(key, entry["slug"]) == entry["slug"], spelling


def test_ambiguous_spellings_name_several_devices():
    seen = list(chain.from_iterable(g.get("ambiguous_aliases", ()) for g in GPUS))
    assert set(seen) == {"A100", "V100"}
    for name in set(seen):
        assert seen.count(name) > 1
        with pytest.raises(MeshwrightError, match="ambiguous"):
            catalogue.gpu(name)


def test_prices_are_of_known_devices():
    assert set(prices()) <= set(ids(GPUS))
    assert all(0.1 < p["usd_per_gpu_hour"] < 20 for p in prices().values())
    assert all(p["source"] and p["date"] for p in prices().values())


def test_every_device_has_a_curve_or_kin():
    kin, measured = _kin_table(), _measured()["matmul"]
    for gpu in GPUS:
        known = gpu["name"] in measured or gpu["name"] in kin["device"]
        assert known or gpu["generation"] in kin["generation"], gpu["slug"]
    donors = [entry["like"] for entry in (*kin["device"].values(), *kin["generation"].values())]
    assert set(donors) <= set(measured)


def test_fits_are_good_on_training_shapes():
    """Products and attention: median error of the fit below 10%, without bias."""
    products = [c for precisions in _measured()["matmul"].values() for c in precisions.values()]
    for curve in (*products, *_measured()["attention"].values()):
        assert curve["median_error"] < 0.10
        assert abs(curve["bias"]) < 0.02
    sixteen_bits = [d["bf16"]["median_error"] for d in _measured()["matmul"].values()]
    assert sorted(sixteen_bits)[len(sixteen_bits) // 2] < 0.05
