"""Optimizers by the names that trainers give them."""

from __future__ import annotations

from typing import Any

from meshwright.base.pattern import pattern

_EIGHT_BIT = pattern(r"8.?bit|4.?bit|int8|_8$")
_KINDS = (
    (pattern(r"adafactor|came"), "adafactor"),
    (pattern(r"lomo"), "sgd"),  # updates in the backward pass, keeps no state
    (pattern(r"muon|dion"), "muon"),
    (pattern(r"sgd|signsgd"), "sgd"),
    (pattern(r"lion|rmsprop|adagrad|momentum"), "sgd-momentum"),  # one moment
    (pattern(r"adam|lamb|ademamix|apollo|grok|anyprecision|prodigy|shampoo|soap"), "adam"),
)
HF_NAMES = {
    "adam": "adamw_torch",
    "adam-8bit": "adamw_bnb_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "sgd-momentum": "lion_32bit",
}


def optimizer_word(name: Any) -> str | None:
    """The plan's word for an optimizer, by the states it keeps; None for a name not known."""
    text = str(name).lower().rpartition(".")[2] if isinstance(name, str) else ""
    word = next((kind for pattern, kind in _KINDS if pattern.search(text)), None)
    return "adam-8bit" if word in ("adam", "sgd-momentum") and _EIGHT_BIT.search(text) else word
