"""The model whose shape a configuration states, and what stands in where it states none.

Shapes go by the names of an HF config.json. Where a configuration leaves out what a model needs,
two stand-ins take its place: an ordinary one, and one whose every dimension is a multiple of
2^6 * 3^2 * 5 * 7, so that no divisibility rule finds fault with it. A finding that holds for both
does not hang on what is missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.model.generic import decoder, merge_runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.model.architecture import Model

ESSENTIAL = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_MOST = 10**6  # of any dimension of a model
_DIVISIBLE = 2**6 * 3**2 * 5 * 7
_ORDINARY = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
_ACCOMMODATING = {
    "hidden_size": _DIVISIBLE,
    "num_hidden_layers": _DIVISIBLE,
    "num_attention_heads": _DIVISIBLE,
    "num_key_value_heads": _DIVISIBLE,
    "head_dim": 128,
    "intermediate_size": 4 * _DIVISIBLE,
    "vocab_size": 8 * _DIVISIBLE,
}
_EXPERTS = {"num_experts": 64, "num_experts_per_tok": 2, "moe_intermediate_size": 2048}
_MANY_EXPERTS = {**_EXPERTS, "num_experts": _DIVISIBLE}
_TERM = pattern(r"\[\s*([01](?:\s*,\s*[01])*)\s*\]\s*(?:\*\s*(\d{1,5}))?")


def is_whole(shape: Mapping[str, Any]) -> bool:
    """Whether a shape says enough of a model to be one."""
    return all(shape.get(name) for name in ESSENTIAL)


def stand_ins(shape: Mapping[str, Any], *, experts: bool) -> tuple[Model, Model]:
    """The ordinary and the accommodating model, with the stated parts of `shape` in place."""
    stated = _completed({n: v for n, v in shape.items() if v is not None})
    routed = experts or bool(stated.get("num_experts"))
    return (
        shaped({**_ORDINARY, **(_EXPERTS if routed else {}), **stated}),
        shaped({**_ACCOMMODATING, **(_MANY_EXPERTS if routed else {}), **stated}),
    )


def shaped(shape: Mapping[str, Any], *, name: str = "model") -> Model:
    """The decoder of a shape; what it does not say is Llama's."""
    s = _completed({n: v for n, v in shape.items() if v is not None})
    layers = min(int(s["num_hidden_layers"]), _MOST)
    pattern = _routed_layers(s, layers)
    common = _dimensions(s, name)
    if pattern is None or len(set(pattern)) == 1:
        dense = pattern is None or not pattern[0]
        routed = {} if dense else _routed(s)
        model = decoder(layers=1, **common, **routed)
        return replace(model, runs=tuple(replace(run, count=layers) for run in model.runs))
    plain = decoder(layers=1, **common).runs[0].block
    routed_block = decoder(layers=1, **common, **_routed(s)).runs[0].block
    blocks = [routed_block if is_routed else plain for is_routed in pattern]
    model = decoder(layers=1, **common, **_routed(s))
    return replace(model, runs=merge_runs(blocks))


def _completed(shape: Mapping[str, Any]) -> dict[str, Any]:
    """A shape with the dimensions that follow from others."""
    s = dict(shape)
    heads, hidden = s.get("num_attention_heads"), s.get("hidden_size")
    if heads and hidden and not s.get("head_dim"):
        s["head_dim"] = max(hidden // heads, 1)
    if heads and not s.get("num_key_value_heads"):
        s["num_key_value_heads"] = heads
    if s.get("qk_nope_head_dim") and s.get("kv_lora_rank"):
        s["head_dim"] = s["qk_nope_head_dim"] + (s.get("qk_rope_head_dim") or 0)
    return s


def _dimensions(s: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Keywords of `decoder` for everything but the layers and the experts."""
    hidden = s["hidden_size"]
    bias = bool(s.get("add_bias_linear"))
    return {
        "name": name,
        "hidden_size": hidden,
        "heads": s["num_attention_heads"],
        "kv_heads": s.get("num_key_value_heads"),
        "head_dim": s.get("head_dim"),
        "v_head_dim": s.get("v_head_dim"),
        "vocab_size": s.get("vocab_size") or _ORDINARY["vocab_size"],
        "intermediate_size": s.get("intermediate_size") or 4 * hidden,
        "gated": bool(s.get("gated_mlp", True)),
        "activation": str(s.get("hidden_act", "silu")),
        "bias": bias,
        "tied": bool(s.get("tie_word_embeddings", False)),
        "qk_norm": "head" if s.get("qk_norm") else "",
        "window": s.get("sliding_window") or None,
        "q_lora_rank": s.get("q_lora_rank"),
        "kv_lora_rank": s.get("kv_lora_rank"),
        "qk_rope_head_dim": s.get("qk_rope_head_dim") or 0,
        "position_embeddings": (s.get("max_position_embeddings") or 0)
        if s.get("position_embedding_type") == "learned_absolute"
        else 0,
        "mtp_layers": s.get("mtp_num_layers") or 0,
        "source": "the configuration",
    }


def _routed(s: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `decoder` for the experts."""
    width = s.get("moe_intermediate_size") or s.get("intermediate_size") or 4 * s["hidden_size"]
    shared = s.get("shared_expert_intermediate_size") or (s.get("n_shared_experts") or 0) * width
    return {
        "experts": s["num_experts"],
        "top_k": s.get("num_experts_per_tok") or 2,
        "expert_intermediate_size": width,
        "shared_intermediate_size": shared,
    }


def _routed_layers(s: Mapping[str, Any], layers: int) -> tuple[bool, ...] | None:
    """Which layers have experts, None where there are none at all."""
    if not s.get("num_experts"):
        return None
    every = s.get("moe_layer_freq")
    if (pattern := moe_layers(every, layers)) is not None:
        return pattern
    first = int(s.get("first_k_dense_replace") or 0)
    return tuple(i >= first for i in range(layers)) if first else (True,)


def moe_layers(frequency: Any, layers: int) -> tuple[bool, ...] | None:
    """The layers with experts that a frequency means: every n-th, a list, or "[0]*3+[1]*29".

    None where it says nothing, or not of as many layers.
    """
    if isinstance(frequency, str):
        if frequency.strip().isdigit():
            return moe_layers(int(frequency), layers)
        found = _TERM.findall(frequency)
        frequency = [
            int(bit)
            for bits, times in found
            for _ in range(min(int(times or 1), _MOST))
            for bit in bits.split(",")
        ]
    if isinstance(frequency, list) and len(frequency) == layers:
        return tuple(bool(bit) for bit in frequency)
    if isinstance(frequency, int) and frequency > 1 and layers <= _MOST:
        return tuple(i % frequency == 0 for i in range(layers))
    return None
