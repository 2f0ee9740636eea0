"""Quantized weights and reentrant recomputation, as arguments of the trainers state them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks.hugging_face.sharding import truth

if TYPE_CHECKING:
    from meshwright.frameworks.meanings import Meanings

BITS = {
    **dict.fromkeys(("load_in_4bit", "use_4bit", "use_qlora", "q_lora"), 4),
    **dict.fromkeys(("load_in_8bit", "use_8bit"), 8),
}
COUNTED = ("quantization_bit", "quant_bits", "bits")
STORAGE = ("bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype")
_REENTRANT = ("gradient_checkpointing_kwargs.use_reentrant", "use_reentrant", "use_reentrant_gc")
_KWARGS = "gradient_checkpointing_kwargs"
_IN_TEXT = pattern(r"use_reentrant\W{1,5}(true|false)", re.IGNORECASE)


def give_quantized(m: Meanings) -> None:
    """`quantized_bits` that weights are loaded in, and `quant_storage`, the type that packs them.

    bitsandbytes packs 4-bit weights in bytes unless told otherwise; TRL, until its own option came,
    in the type that the model is loaded in.
    """
    for name, bits in BITS.items():
        if m.is_stated(name) and truth(m.field(name)):
            m.give("quantized_bits", bits, name)
    for name in COUNTED:
        stated = m.config.stated(name)
        if isinstance(stated, int) and not isinstance(stated, bool) and stated in (2, 3, 4, 8):
            m.give("quantized_bits", stated, name)
    storage = next((n for n in (*STORAGE, "dtype") if m.config.stated(n) is not None), None)
    if storage is not None:
        m.give("quant_storage", str(m.field(storage)).rpartition(".")[2].lower(), storage)


def give_reentrant(m: Meanings) -> None:
    """`reentrant_checkpointing`, where it is stated: alone, or among the checkpoint's arguments."""
    for name in _REENTRANT:
        if m.config.stated(name) is not None:
            m.give("reentrant_checkpointing", bool(truth(m.field(name))), name)
            return
    found = _IN_TEXT.search(str(m.config.stated(_KWARGS) or ""))
    if found:
        m.give("reentrant_checkpointing", found[1].lower() == "true", _KWARGS)
