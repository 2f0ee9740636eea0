"""Precision, widths of gradients and optimizer states, the optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

_WIDTHS = {"fp32": 4, "float32": 4, "bf16": 2, "fp16": 2, "bfloat16": 2, "float16": 2, "fp8": 1}
_OPTIMIZERS = {
    "adam": "adam",
    "adamw": "adam",
    "distributed_fused_adam": "adam",
    "fused_adam": "adam",
    "sgd": "sgd-momentum",
    "muon": "muon",
    "dist_muon": "muon",
    "adaptive_muon": "muon",
}
_HALVES = ("bf16", "fp16")


def precision(m: Meanings) -> None:
    """Arithmetic of the products, and the dtype of gradients and of what is reduced."""
    formats = ("fp8_format", "fp8_hybrid", "fp8_e4m3")
    fp8 = any(m.value(v) for v in formats)
    fp4 = bool(m.value("fp4_format"))
    recipe = str(m.value("fp8_recipe", "delayed")) if fp8 else "none"
    half = next((h for h in _HALVES if m.value(h)), "fp32")
    word = half
    if fp8:
        word = "mxfp8" if recipe == "mxfp8" else "fp8"
    if fp4:
        word = "nvfp4"
    m.follow("fp8", fp8, *formats)
    m.follow("fp4", fp4, "fp4_format")
    m.follow("fp8_recipe", recipe, "fp8_recipe", *formats)
    m.follow("precision", word, *_HALVES, *formats, "fp8_recipe", "fp4_format")
    m.follow("pipeline_dtype", half, *_HALVES)
    _gradients(m, half)


def _gradients(m: Meanings, half: str) -> None:
    """Gradients are accumulated and reduced in fp32 unless a setting or fp16 says otherwise."""
    sources = ("grad_reduce_in_bf16", "main_grads_dtype", "accumulate_allreduce_grads_in_fp32")
    wide = half == "fp32" or bool(m.value("accumulate_allreduce_grads_in_fp32"))
    if half == "bf16":
        narrow = m.value("grad_reduce_in_bf16") or m.value("main_grads_dtype", "fp32") != "fp32"
        wide = not narrow
    stated = bool(m.value("accumulate_allreduce_grads_in_fp32"))  # also where it contradicts
    accumulates = (wide or stated) and half != "fp32"
    m.follow("accumulate_allreduce_grads_in_fp32", accumulates, *sources, half)
    m.follow("grad_reduce_dtype", "fp32" if wide else half, *sources)
    m.follow("grad_bytes", 4 if wide else 2, *sources)
    m.follow("reduce_bytes", 4 if wide else 2, *sources)
    primary = bool(m.value("fp8_param_gather")) and bool(m.value("fp8"))
    param = 4 if half == "fp32" else 1 if primary else 2
    m.follow("param_bytes", param, "fp8_param_gather", *_HALVES)
    m.follow("master_weights", half != "fp32", *_HALVES)


def state(m: Meanings) -> None:
    """The optimizer and the width of its moments."""
    name = str(m.value("optimizer", "adam")).lower()
    word = _OPTIMIZERS.get(name)
    if word == "sgd-momentum" and m.value("sgd_momentum") == 0:
        word = "sgd"
    if word is not None:
        m.follow("optimizer", word, "optimizer", "sgd_momentum")
    moments = ("exp_avg_dtype", "exp_avg_sq_dtype")
    widths = [_WIDTHS.get(_dtype(m.value(v)), 4) for v in moments]
    aware = bool(m.value("use_precision_aware_optimizer"))
    width = max(sum(widths) // 2, 1) if aware else 4
    m.follow("optimizer_state_bytes", width, "use_precision_aware_optimizer", *moments)
    share = m.value("offload_optimizer_ratio", 1.0)
    if m.value("optimizer_offload") and isinstance(share, int | float):
        sources = ("optimizer_offload", "offload_optimizer_ratio")
        m.follow("offload_optimizer", float(share), *sources)


def _dtype(value: object) -> str:
    """A dtype's bare name, whatever library it is spelled for."""
    return str(value).rsplit(".", 1)[-1].lower()
