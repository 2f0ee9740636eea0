"""Sizes that shapes of operators tell."""

from __future__ import annotations

from meshwright.diagnose.split.shapes import attention_sizes, moved_bytes
from meshwright.diagnose.trace.columns import Shape

BF16 = "c10::BFloat16"


def shape(*dims, kinds=None):
    return Shape(dims=dims, types=kinds or (BF16,) * len(dims))


def test_sizes_of_attention():
    rows_first = shape((2, 4096, 32, 128), (2, 4096, 8, 128), (2, 4096, 8, 128))
    found = attention_sizes("aten::_flash_attention_forward", rows_first)
    assert found[1:-1] == (2, 32, 8, 4096, 4096, 128, BF16)
    heads_first = shape((2, 32, 4096, 128), (2, 8, 4096, 128), (2, 8, 4096, 128))
    same = attention_sizes("aten::_scaled_dot_product_flash_attention_for_cpu", heads_first)
    assert same[1:-1] == found[1:-1]
    behind = shape((2, 4096, 32, 128), *rows_first.dims)
    back = attention_sizes("aten::_flash_attention_backward", behind)
    assert (back[1:-1], back[-1]) == (found[1:-1], True)
    packed = shape((8192, 32, 128), (8192, 8, 128))
    assert attention_sizes("aten::_flash_attention_forward", packed) is None


def test_bytes_of_elementwise_operators():
    assert moved_bytes("aten::add", shape((4, 8), (4, 8))) == 3 * 32 * 2
    assert moved_bytes("aten::mul", shape((4, 8), (8,))) == (32 + 8 + 32) * 2
    assert moved_bytes("aten::silu", shape((4, 8))) == 2 * 32 * 2
    copied = shape((4, 8), (4, 8), (), kinds=("float", BF16, "Scalar"))
    assert moved_bytes("aten::copy_", copied) == 32 * 4 + 32 * 2
    assert moved_bytes("aten::add", shape((4, 8), kinds=("what",))) == 0
