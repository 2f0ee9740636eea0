"""Qwen 3, dense and routed: a norm on every query and key head."""

from __future__ import annotations

from meshwright.train.families.layout import GROUPED, HEAD_NORMS, Layout

_QWEN3 = Layout(attention={**GROUPED, **HEAD_NORMS})
FAMILIES = {"qwen3": _QWEN3, "qwen3_moe": _QWEN3}
