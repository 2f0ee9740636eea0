"""LoRA and QLoRA: rank, what carries adapters, and how wide the frozen weights are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.meanings import Meanings
    from meshwright.frameworks.setting import Setting

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = pattern(r"gate|up_proj|down_proj|mlp|fc\d?|w[123]\b|dense_|all|linear")


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


DEFAULT_RANK = 8


def give_told_adapters(m: Meanings, facts: Mapping[str, Value]) -> None:
    """Adapters that only a comment tells of; `facts` are what comments say, by the trainer's names.

    Nothing is given where the configuration itself states adapters.
    """
    tuned, rank = facts.get("finetuning_type"), facts.get("lora_r")
    if m.stating("lora_rank") or not ((tuned is not None and tuned.value == "lora") or rank):
        return
    size = rank.value if rank is not None and isinstance(rank.value, int) else DEFAULT_RANK
    named = facts.get("lora_target") or facts.get("lora_target_modules")
    give_adapters(m, rank=size, targets=named.value if named else "", bits=_bits(facts), names=())
    stating: tuple[Setting, ...] = tuple(s for v in (tuned, rank) if v for s in v.settings)
    for variable in ("lora_rank", "lora_all_linear"):
        m.given[variable] = Value(value=m.given[variable].value, settings=stating)


def _bits(facts: Mapping[str, Value]) -> int:
    found = facts.get("bits")
    if found is not None and found.value in (4, 8):
        return int(found.value)
    four = facts.get("load_in_4bit")
    return 4 if four is not None and four.value is True else 0
