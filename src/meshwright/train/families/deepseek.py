"""DeepSeek-V3: latent attention (arXiv 2405.04434, section 2.1), shared experts."""

from __future__ import annotations

from meshwright.train.families.layout import Cut, Layout

_LATENT = {
    "q_proj": Cut.COLUMN,  # where queries have no latent of their own
    "q_a_proj": Cut.DOWN,
    "q_a_layernorm": Cut.NORM,
    "q_b_proj": Cut.UP,
    "kv_a_proj_with_mqa": Cut.DOWN,
    "kv_a_layernorm": Cut.NORM,
    "kv_b_proj": Cut.UP,
    "o_proj": Cut.ROW,
}
FAMILIES = {"deepseek_v3": Layout(attention=_LATENT, shared_experts="shared_experts")}
