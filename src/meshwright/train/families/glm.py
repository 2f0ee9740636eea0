"""GLM-4.5: dense first layers, then routed and shared experts; some sizes with query/key norms."""

from __future__ import annotations

from meshwright.train.families.layout import GROUPED, HEAD_NORMS, Layout

FAMILIES = {
    "glm4_moe": Layout(attention={**GROUPED, **HEAD_NORMS}, shared_experts="shared_experts")
}
