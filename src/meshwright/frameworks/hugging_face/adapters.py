"""LoRA and QLoRA: rank, what carries adapters, and how wide the frozen weights are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = re.compile(r"gate|up_proj|down_proj|mlp|fc\d?|w[123]\b|dense_|all|linear")


def covers_everything(targets: Any) -> bool:
    """Whether adapters sit on the feed-forward network too, or only on attention."""
    words = targets if isinstance(targets, list | tuple) else re.split(r"[,\s]+", str(targets))
    return any(_MLP.search(str(word).lower()) for word in words)


def give_adapters(
    m: Meanings, *, rank: int, targets: Any, bits: int, names: tuple[str, ...]
) -> None:
    """LoRA of `rank` on `targets` over frozen weights of `bits` (0: as wide as any)."""
    m.give("lora_rank", max(rank, 1), *names)
    m.give("lora_all_linear", covers_everything(targets), *names)
    if isinstance(targets, list):
        m.give("lora_target_modules", targets, *names)
    if bits:
        m.give("base_weight_bits", bits, *names)
