"""Operators of PyTorch by the kind of work that they are."""

import pytest

from meshwright.diagnose.split.classes import CLASSES, KINDS, class_of
from meshwright.diagnose.split.operators import _PATTERNS, classed_operator


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "gemm"),
        ("aten::addmm", "gemm"),
        ("aten::bmm", "gemm"),
        ("aten::_grouped_mm", "gemm"),
        ("aten::linear", "gemm"),
        ("mkldnn::_linear_pointwise", "gemm"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::_softmax", "attention"),
        ("aten::mul", "elementwise"),
        ("aten::add_", "elementwise"),
        ("aten::addcmul_", "elementwise"),
        ("aten::silu_backward", "elementwise"),
        ("aten::_to_copy", "copy_layout"),
        ("aten::copy_", "copy_layout"),
        ("aten::cat", "copy_layout"),
        ("aten::fill_", "copy_layout"),
        ("aten::mean", "reduce"),
        ("aten::sum", "reduce"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::_fused_rms_norm", "norm"),
        ("aten::native_layer_norm_backward", "norm"),
        ("aten::convolution_backward", "conv"),
        ("aten::topk", "sort_scan"),
        ("aten::nothing_of_the_kind", "other"),
        ("fsdp::all_gather_copy_in", "copy_layout"),
        ("fsdp::chunk_cat", "copy_layout"),
        ("gloo:all_reduce", "comm"),
        ("gloo:recv", "comm"),
    ],
)
def test_classes(name, kind):
    assert class_of(name) == kind


def test_kernels_are_no_operators():
    assert classed_operator("void at::native::vectorized_elementwise_kernel<4>") is None
    assert class_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL") == "comm"


def test_every_class_is_one_of_the_account():
    assert {c for c, _, _ in _PATTERNS} <= set(CLASSES)
    assert {k for _, k, _ in _PATTERNS} <= set(KINDS)
