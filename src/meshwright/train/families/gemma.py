"""Gemma 2 and 3 (text): norms before and after each half; Gemma 3 norms its heads as well."""

from __future__ import annotations

from meshwright.train.families.layout import GROUPED, HEAD_NORMS, Layout

_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
FAMILIES = {
    "gemma2": Layout(norms=_NORMS),
    "gemma3_text": Layout(attention={**GROUPED, **HEAD_NORMS}, norms=_NORMS),
}
