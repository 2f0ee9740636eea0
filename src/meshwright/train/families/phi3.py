"""Phi-3 and Phi-4: queries, keys and values from one product, gate and up from another."""

from __future__ import annotations

from meshwright.train.families.layout import Cut, Layout

FAMILIES = {
    "phi3": Layout(
        attention={"qkv_proj": Cut.PARTS, "o_proj": Cut.ROW},
        mlp={"gate_up_proj": Cut.PARTS, "down_proj": Cut.ROW},
    )
}
