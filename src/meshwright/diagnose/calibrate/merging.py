"""Shapes of all ranks together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from meshwright.diagnose.rank import AttentionShape, MatmulShape, MovedShape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.diagnose.rank import Rank

Shape = TypeVar("Shape", MatmulShape, AttentionShape, MovedShape)


def all_matmuls(ranks: Sequence[Rank]) -> list[MatmulShape]:
    """Products of all ranks, one entry for each shape."""
    merged = _merged(s for r in ranks if r.gemm for s in r.gemm.shapes)
    return [
        replace(s, tflops=2.0 * s.batch * s.m * s.n * s.k * s.count / s.kernel_us / 1e6)
        for s in merged
        if s.kernel_us > 0
    ]


def all_attention(ranks: Sequence[Rank]) -> list[AttentionShape]:
    """Fused attention of all ranks."""
    return _merged(s for r in ranks for s in r.attention)


def all_moved(ranks: Sequence[Rank]) -> list[MovedShape]:
    """Elementwise operators of all ranks."""
    return _merged(s for r in ranks for s in r.moved)


def _merged(shapes: Iterable[Shape]) -> list[Shape]:
    """Equal shapes as one, counts and times added up."""
    found: dict[Shape, tuple[int, float]] = {}
    for shape in shapes:
        same = _bare(shape)
        count, us = found.get(same, (0, 0.0))
        found[same] = (count + shape.count, us + shape.kernel_us)
    return [replace(s, count=count, kernel_us=us) for s, (count, us) in found.items()]


def _bare(shape: Shape) -> Shape:
    """The shape without what was measured."""
    if isinstance(shape, MatmulShape):
        return replace(shape, count=0, kernel_us=0.0, tflops=0.0)
    return replace(shape, count=0, kernel_us=0.0)
