"""Curves from recorded shapes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.calibrate.kernels import (
    fit_attention,
    fit_matmul,
    fit_memory,
    precision_of,
)
from meshwright.diagnose.rank import AttentionShape, MatmulShape, MovedShape
from meshwright.hardware import catalogue, curves, efficiency

H100 = catalogue.gpu("H100")
BF16 = "c10::BFloat16"
SIZES = [(8192, 4096, 4096), (8192, 14336, 4096), (8192, 4096, 14336), (2048, 4096, 4096)]


def product(m, n, k, seconds, count=20):
    return MatmulShape(
        op="aten::mm",
        batch=1,
        m=m,
        n=n,
        k=k,
        dtype=BF16,
        count=count,
        kernel_us=seconds * 1e6 * count,
        tflops=2 * m * n * k / seconds / 1e12,
    )


@given(rate=st.floats(0.05, 0.95))
def test_the_rate_of_a_curve_is_found_again(rate):
    _, base, roof = efficiency.matmul_curve(H100, "bf16")
    slow = replace(base, rate=rate)
    shapes = [
        product(*size, float(curves.matmul_s(slow, roof, *size, operand_bytes=2.0)))
        for size in SIZES
    ]
    fitted = fit_matmul(H100, "bf16", shapes)
    assert fitted.curve.rate == pytest.approx(rate, rel=1e-3)
    assert fitted.spread < 1e-3
    assert fitted.points == 80


def test_all_kernels_together_take_as_long_as_they_took():
    shapes = [
        product(*size, seconds)
        for size, seconds in zip(SIZES, [4e-4, 2e-3, 1e-3, 9e-5], strict=True)
    ]
    fitted = fit_matmul(H100, "bf16", shapes)
    gpu = replace(H100, curves=None)
    _, _, roof = efficiency.matmul_curve(gpu, "bf16")
    total = sum(
        s.count * float(curves.matmul_s(fitted.curve, roof, s.m, s.n, s.k, operand_bytes=2.0))
        for s in shapes
    )
    assert total * 1e6 == pytest.approx(sum(s.kernel_us for s in shapes), rel=1e-3)
    assert fitted.spread > 0.0


def test_few_or_tiny_products_calibrate_nothing():
    assert fit_matmul(H100, "bf16", [product(8192, 4096, 4096, 4e-4, count=9)]) is None
    assert fit_matmul(H100, "bf16", [product(32, 32, 32, 5e-6, count=500)]) is None


def test_memory_bound_products_do_not_set_the_rate_of_computation():
    thin = product(1, 4096, 4096, 2e-5, count=400)
    thick = product(8192, 4096, 4096, 4e-4)
    alone, both = (fit_matmul(H100, "bf16", s) for s in ([thick], [thick, thin]))
    assert both.curve == alone.curve


def attention(seconds, *, backward=False, count=20):
    return AttentionShape(
        op="aten::_flash_attention_forward",
        batch=2,
        heads=32,
        kv_heads=8,
        queries=4096,
        keys=4096,
        head_dim=128,
        dtype=BF16,
        backward=backward,
        count=count,
        kernel_us=seconds * 1e6 * count,
    )


def test_attention_forward_and_backward():
    fitted = fit_attention(
        H100, "bf16", [attention(1.2e-3), attention(4e-3, backward=True)], causal=True
    )
    gpu = replace(H100, curves=None)
    _, roof = efficiency.attention_curve(gpu, "bf16")
    shape = {"rows": 2 * 32 * 4096, "keys": 4096, "head_dim": 128, "kv_rows": 2 * 8 * 4096}
    forward = float(curves.attention_forward_s(fitted.curve, roof, **shape, causal=True))
    assert forward == pytest.approx(1.2e-3, rel=1e-3)
    assert curves.attention_backward_s(fitted.curve, forward) == pytest.approx(4e-3, rel=1e-3)


def test_memory_by_large_tensors_only():
    large = MovedShape(op="aten::add", bytes=300_000_000, count=30, kernel_us=30 * 130.0)
    cached = MovedShape(op="aten::add", bytes=2_000_000, count=30, kernel_us=30 * 0.1)
    fitted = fit_memory(H100, [large, cached])
    assert fitted.points == 30
    assert fitted.curve.memory == pytest.approx(3e8 / 128e-6 / 3.35e12, rel=0.02)
    assert fit_memory(H100, [cached]) is None


def test_precisions():
    assert precision_of("c10::BFloat16", tflops=1.0, gpu=H100) == "bf16"
    assert precision_of("float", tflops=300.0, gpu=H100) == "tf32"
    assert precision_of("float", tflops=40.0, gpu=H100) == "fp32"
    assert precision_of("long int", tflops=1.0, gpu=H100) == ""
