"""OLMo 2: norms after each half, and one over all query heads and one over all key heads."""

from __future__ import annotations

from meshwright.train.families.layout import GROUPED, Cut, Layout

FAMILIES = {
    "olmo2": Layout(
        attention={**GROUPED, "q_norm": Cut.WIDE, "k_norm": Cut.WIDE},
        norms=("post_attention_layernorm", "post_feedforward_layernorm"),
    )
}
