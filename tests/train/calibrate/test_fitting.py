"""Curves from times, which are made up here."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
from meshwright.hardware import curves
from meshwright.train.calibrate import fits
from meshwright.train.calibrate.fitting import fit
from meshwright.train.calibrate.kernels import SHAPES, Attended, Product
from meshwright.train.calibrate.links import Moved, Unit

ROOF = curves.Roof(flops_per_s=1e11, bytes_per_s=15e9)


def test_a_line_is_found_again():
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    found = fit(
        lambda v: v["a"] + v["b"] * x,
        3.0 + 0.25 * x,
        start={"a": 1.0, "b": 1.0},
        bounds={"a": (0.1, 100.0), "b": (0.01, 100.0)},
    )
    assert found.parameters == pytest.approx({"a": 3.0, "b": 0.25}, rel=0.02)
    assert found.error < 0.01


def test_one_outlier_does_not_move_a_curve():
    x = np.arange(1.0, 12.0)
    seconds = 2.0 * x
    seconds[5] *= 20
    found = fit(lambda v: v["b"] * x, seconds, start={"b": 1.0}, bounds={"b": (0.01, 100.0)})
    assert found.parameters["b"] == pytest.approx(2.0, rel=0.01)


def test_a_matmul_curve_predicts_its_points():
    true = curves.MatmulCurve(
        launch_s=2e-6, rate=0.9, m0=12.0, n0=2.0, k0=20.0, memory=0.4, output_bytes=4.0
    )
    points = [
        Product(
            m=m,
            n=n,
            k=k,
            seconds=float(curves.matmul_s(true, ROOF, m, n, k, operand_bytes=4.0)),
        )
        for m, n, k in SHAPES
    ]
    found = fits.matmul(points, ROOF, width_bytes=4.0)
    assert found.error < 0.03
    seconds = curves.matmul_s(found.curve, ROOF, 300, 700, 900, operand_bytes=4.0)
    expected = curves.matmul_s(true, ROOF, 300, 700, 900, operand_bytes=4.0)
    assert seconds == pytest.approx(expected, rel=0.05)


def test_attention_keeps_forward_and_backward_apart():
    true = curves.AttentionCurve(
        launch_s=1e-6, rate=0.5, rows0=1.0, keys0=60.0, head_dim0=20.0, backward=0.8
    )

    def point(batch, heads, tokens, head_dim):
        forward = curves.attention_forward_s(
            true,
            ROOF,
            rows=batch * heads * tokens,
            keys=tokens,
            head_dim=head_dim,
            kv_rows=batch * heads * tokens,
            causal=True,
        )
        backward = curves.attention_backward_s(true, forward)
        return Attended(
            batch=batch,
            heads=heads,
            kv_heads=heads,
            tokens=tokens,
            head_dim=head_dim,
            forward_s=float(forward),
            backward_s=float(backward),
            tiled_s=2.0 * float(forward + backward),
        )

    points = [
        point(b, h, s, d) for b in (1, 4) for h in (2, 8) for s in (64, 512) for d in (32, 96)
    ]
    found = fits.attention(points, ROOF)
    assert found.error < 0.05
    assert found.curve.backward == pytest.approx(0.8, rel=0.05)
    assert fits.tiled_share(points) == pytest.approx(0.5)


def test_collectives_and_units_by_bytes():
    moved = [
        Moved(kind="all_reduce", size=2, total_bytes=size, seconds=1e-4 + size / 1e9)
        for size in (4096, 65536, 1 << 20, 1 << 24)
    ]
    found = fits.collective(moved, "all_reduce", 4e9)
    seconds = curves.collective_s(found.curve, 4e9, moved_bytes=float(1 << 22), size=2)
    assert seconds == pytest.approx(1e-4 + (1 << 22) / 1e9, rel=0.1)
    units = [
        Unit(parameters=n, gather_s=1e-3 + 4 * n / 2e9, reduce_s=1.0)
        for n in (1 << 12, 1 << 18, 1 << 22)
    ]
    unit = fits.unit(units, "gather_s", kind="all_gather", size=2, rate_bytes_per_s=4e9)
    assert unit.curve.launch_s == 0.0
    assert unit.curve.rate * 4e9 == pytest.approx(1e9, rel=0.1)  # half of it crosses the link


def test_speedup_is_never_a_slowdown():
    assert fits.speedup({"a": 1.0, "b": 1.0}, {"a": 1.5, "b": 1.5, "c": 9.0}) == 1.5
    assert fits.speedup({"a": 2.0}, {"a": 1.0}) == 1.0
