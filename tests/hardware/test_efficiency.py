"""Kernel and collective curves: anchors, and the order that no figure may break."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.hardware import catalogue, efficiency
from meshwright.hardware.cluster import Gpu, Link

GPUS = [catalogue.gpu(name) for name in catalogue.names()]
KINDS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
LINKS = [
    link
    for spec in ("A100-80GB:8", "H100:8", "GB200:4", "MI300X:8", "RTX4090:8", "TPU v5e:256")
    for link in catalogue.cluster(spec, nodes=32).links
]
dims = st.integers(1, 100_000)
gpus = st.sampled_from(GPUS)
precisions = st.sampled_from(["fp32", "tf32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"])


@pytest.mark.parametrize(
    ("gpu", "precision", "tflops"),
    [  # achieved on large products, stas00/ml-engineering@744d01e18b compute/accelerator README
        ("A100-80GB", "bf16", 271),
        ("H100", "bf16", 794),
        ("GH200", "bf16", 829),
        ("B200", "bf16", 1745),
        ("B300", "bf16", 1769),
        ("GB200", "bf16", 1822),
        ("MI300X", "bf16", 668),
        ("MI325X", "bf16", 785),
        ("MI355X", "bf16", 1565),
        ("H100", "fp8", 1403),
        ("H200", "fp8", 1453),
        ("B200", "fp8", 3433),
    ],
)
def test_large_products_reach_what_others_measured(gpu, precision, tflops):
    """The best shape of a sweep lies above the curve, which is a median over shapes and runs."""
    m, n, k = 8192, 8192, 8192
    seconds = efficiency.matmul_s(catalogue.gpu(gpu), precision, m, n, k)
    assert 0.83 <= 2.0 * m * n * k / seconds / 1e12 / tflops <= 1.05


@settings(max_examples=200)
@given(gpus, precisions, dims, dims, dims, st.integers(1, 1000))
def test_product_time_never_falls_when_a_dimension_grows(gpu, precision, m, n, k, more):
    base = efficiency.matmul_s(gpu, precision, m, n, k)
    assert base >= 2.0 * m * n * k / efficiency.peak(gpu, precision)[1]
    for larger in ((m + more, n, k), (m, n + more, k), (m, n, k + more)):
        assert efficiency.matmul_s(gpu, precision, *larger) >= base


@settings(max_examples=100)
@given(gpus, precisions, dims, st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 64))
def test_grouped_product_costs_at_least_its_weights_and_flops(gpu, precision, rows, n, k, experts):
    one = efficiency.grouped_matmul_s(gpu, precision, rows, n, k, experts)
    assert one >= 2.0 * experts * rows * n * k / efficiency.peak(gpu, precision)[1]
    width = efficiency.OPERAND_BYTES[efficiency.peak(gpu, precision)[0]]
    assert one >= experts * n * k * width / gpu.memory_bytes_per_s
    assert efficiency.grouped_matmul_s(gpu, precision, rows, n, k, experts + 1) >= one
    assert efficiency.grouped_matmul_s(gpu, precision, rows + 1, n, k, experts) >= one


@settings(max_examples=100)
@given(gpus, st.integers(1, 128), st.integers(1, 65_536), st.sampled_from([64, 128, 192, 256]))
def test_attention_never_falls_when_it_grows(gpu, heads, queries, head_dim):
    shape = {"heads": heads, "kv_heads": heads, "head_dim": head_dim, "keys": queries}
    forward = efficiency.attention_s(gpu, **shape, queries=queries, causal=True)
    assert forward > 0
    longer = efficiency.attention_s(gpu, **shape, queries=queries + 1, causal=True)
    whole = efficiency.attention_s(gpu, **shape, queries=queries, causal=False)
    backward = efficiency.attention_s(gpu, **shape, queries=queries, causal=True, backward=True)
    assert longer >= forward
    assert whole >= forward
    assert backward >= 2.5 * forward


def test_attention_reaches_published_rates():
    """FlashAttention-3, causal, head 128, 16K: 570 to 640 TFLOP/s (arXiv 2407.08608 figure 5)."""
    heads, tokens = 16, 16384
    shape = {"heads": heads, "kv_heads": heads, "head_dim": 128, "queries": tokens, "keys": tokens}
    seconds = efficiency.attention_s(catalogue.gpu("H100"), **shape, causal=True)
    assert 520e12 <= 2.0 * heads * 128 * tokens**2 / seconds <= 660e12


@settings(max_examples=200)
@given(
    st.sampled_from(LINKS),
    st.sampled_from(KINDS),
    st.floats(1.0, 1e11),
    st.integers(2, 512),
    st.floats(1.0, 8.0),
)
def test_collective_never_falls_when_it_grows_or_the_link_slows(link, kind, size_bytes, size, by):
    base = efficiency.collective_s(link, kind, size_bytes, size)
    wire = size_bytes * (size - 1) / size / efficiency.link_rate(link, size)
    assert base >= 0.98 * wire
    assert efficiency.collective_s(link, kind, size_bytes * by, size) >= base
    slower = replace(link, oversubscription=link.oversubscription * by)
    assert efficiency.collective_s(slower, kind, size_bytes, size) >= base


@given(st.sampled_from(LINKS), st.sampled_from(KINDS))
def test_a_group_of_one_sends_nothing(link, kind):
    assert efficiency.collective_s(link, kind, 1e9, 1) == 0


def test_all_reduce_of_a_large_tensor_in_a_node():
    """Bus bandwidth of nccl-tests at 512 MiB over 8 GPUs: 222 (A100) and 445 GB/s (H100)."""
    for spec, expected in (("A100-80GB:8", 222e9), ("H100:8", 445e9)):
        link = catalogue.cluster(spec, nodes=1).links[0]
        seconds = efficiency.collective_s(link, "all_reduce", 512 * 2**20, 8)
        bus = 512 * 2**20 * 2 * 7 / 8 / seconds
        assert bus == pytest.approx(expected, rel=0.12)


def test_a_mesh_without_a_switch_is_slow_in_small_groups():
    link = catalogue.cluster("MI300X:8", nodes=1).links[0]
    assert efficiency.link_rate(link, 2) == 64e9
    assert efficiency.link_rate(link, 8) == 448e9


def test_columns_equal_scalars():
    gpu = catalogue.gpu("H100")
    m, n, k = np.array([64.0, 512, 8192]), np.array([1024.0, 4096, 8192]), 4096
    column = efficiency.matmul_s(gpu, "bf16", m, n, k)
    alone = [efficiency.matmul_s(gpu, "bf16", a, b, k) for a, b in zip(m, n, strict=True)]
    np.testing.assert_array_equal(column, alone)
    size = np.array([1, 2, 8])
    times = efficiency.collective_s(LINKS[0], "all_gather", 1e8, size)
    single = [efficiency.collective_s(LINKS[0], "all_gather", 1e8, int(s)) for s in size]
    np.testing.assert_array_equal(times, single)


def test_precision_that_a_device_lacks_runs_in_a_wider_one():
    a100, v100, h100 = (catalogue.gpu(n) for n in ("A100-80GB", "V100-32GB", "H100"))
    assert efficiency.peak(a100, "fp8") == ("bf16", 312e12)
    assert efficiency.peak(v100, "bf16") == ("fp32", 15.7e12)
    assert efficiency.peak(h100, "nvfp4") == ("fp8", 1979e12)


def test_evidence():
    h100, h800, mi350x = (catalogue.gpu(n) for n in ("H100", "H800", "MI350X"))
    assert efficiency.evidence(h100, "matmul") == "measured"
    assert efficiency.evidence(h100, "matmul", "fp8") == "measured"
    assert efficiency.evidence(h100, "matmul", "fp32") == "scaled"
    assert efficiency.evidence(h800, "attention") == "scaled"
    assert efficiency.evidence(mi350x, "matmul") == "assumed"


def test_evidence_of_links():
    node, network = catalogue.cluster("H100:8", nodes=2).links
    assert efficiency.link_evidence(node) == "measured"
    assert efficiency.link_evidence(network) == "assumed"
    slower = Link(name="", kind="nvlink", domain=8, bytes_per_s=200e9, latency_s=1e-6)
    assert efficiency.link_evidence(slower) == "scaled"


def test_unknown_device_uses_the_default_curve_and_says_so():
    own = Gpu(
        name="X1",
        generation="",
        memory_bytes=1e11,
        memory_bytes_per_s=3.35e12,
        peak_flops={"bf16": 989e12},
    )
    h100 = catalogue.gpu("H100")
    shape = (4096, 4096, 4096)
    expected = efficiency.matmul_s(h100, "bf16", *shape)
    assert efficiency.matmul_s(own, "bf16", *shape) == expected
    assert efficiency.evidence(own, "matmul") == "assumed"


@given(gpus, st.floats(1e3, 1e12))
def test_memory_bound_kernels_stay_below_the_bandwidth(gpu, size_bytes):
    seconds = efficiency.memory_bound_s(gpu, size_bytes)
    assert seconds > size_bytes / gpu.memory_bytes_per_s
