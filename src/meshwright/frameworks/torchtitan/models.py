"""Model families and sizes as torchtitan's registries call them.

Read from torchtitan/models/*/__init__.py of 0.1.0, 0.2.2 and 0.3.0.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

PRESETS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("llama3", "1b"): "llama-3.2-1b",
        ("llama3", "3b"): "llama-3.2-3b",
        ("llama3", "8b"): "llama-3.1-8b",
        ("llama3", "70b"): "llama-3.1-70b",
        ("llama3", "405b"): "llama-3.1-405b",
        ("llama4", "17bx16e"): "llama-4-scout",
        ("llama4", "17bx128e"): "llama-4-maverick",
        ("deepseek_v3", "16b"): "deepseek-v2-lite",
        ("deepseek_v3", "236b"): "deepseek-v2",
        ("deepseek_v3", "671b"): "deepseek-v3",
        ("qwen3", "0.6b"): "qwen3-0.6b",
        ("qwen3", "1.7b"): "qwen3-1.7b",
        ("qwen3", "4b"): "qwen3-4b",
        ("qwen3", "8b"): "qwen3-8b",
        ("qwen3", "14b"): "qwen3-14b",
        ("qwen3", "32b"): "qwen3-32b",
        ("qwen3", "30b-a3b"): "qwen3-30b-a3b",
        ("qwen3", "235b-a22b"): "qwen3-235b-a22b",
        ("gpt_oss", "20b"): "gpt-oss-20b",
        ("gpt_oss", "120b"): "gpt-oss-120b",
        ("kimi_k2_7", "kimi-k2.5"): "kimi-k2",
        ("kimi_k2_7", "moonlight-16b-a3b"): "moonlight-16b-a3b",
    }
)
"""Our preset by family and lower-case size."""

_SPELLED = MappingProxyType(
    {
        "17bx16e": "17bx16e",
        "17bx128e": "17bx128e",
        "20b": "20b",
        "120b": "120b",
        "kimi-k2.5": "Kimi-K2.5",
        "moonlight-16b-a3b": "moonlight-16B-A3B",
    }
)
_OTHER_NAMES = MappingProxyType({"llama-3-8b": ("llama3", "8b"), "llama-3-70b": ("llama3", "70b")})

_SMALL: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 2048,
}
SHAPES: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType(
    {
        ("llama3", "debugmodel"): {**_SMALL, "intermediate_size": 768},
        ("llama4", "debugmodel"): {**_SMALL, "intermediate_size": 768, "num_experts": 8},
        ("qwen3", "debugmodel"): {
            **_SMALL,
            "num_hidden_layers": 8,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 3072,
        },
        ("deepseek_v3", "debugmodel"): {
            **_SMALL,
            "intermediate_size": 1024,
            "moe_intermediate_size": 256,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
    }
)
"""Dimensions of the models that are no preset, by the names of an HF config.json."""

ROTARY_LIMITS: Mapping[tuple[str, str], int] = MappingProxyType(
    {
        ("llama3", ""): 131072,
        ("qwen3", ""): 40960,
        ("qwen3", "debugmodel"): 4096,
        ("qwen3", "debugmodel_moe"): 4096,
        ("deepseek_v3", ""): 16384,
        ("gpt_oss", ""): 131072,
    }
)
"""Longest sequence of a family's rotary tables in 0.3 ("": of its every size)."""

FLEX_SINCE_02 = frozenset(
    {("deepseek_v3", "16b"), ("deepseek_v3", "236b"), ("deepseek_v3", "671b")}
)
"""Models whose attention is FlexAttention in 0.2 without being asked to."""

_ATTENTION = pattern(r"[_-](flex|varlen)(_attn)?$")
_RECIPE = pattern(
    r"(?<![a-z0-9])(deepseek_v3|gpt_oss|kimi_k2_7|llama3|llama4|qwen3_5|qwen35|qwen3)_(\w{1,60})"
)
_FAMILY_OF = MappingProxyType({"qwen35": "qwen3_5"})
_FAMILIES = ("deepseek_v3", "gpt_oss", "kimi_k2_7", "llama3", "llama4", "qwen3_5", "qwen3")


def family_of(name: str) -> str:
    """The registry's family of a name: "llama3" of "llama3", "torchtitan.models.llama3"."""
    text = name.lower().replace("-", "_")
    return next((f for f in _FAMILIES if f in text), "llama3" if text == "llama" else "")


def size_of(flavor: str) -> tuple[str, str]:
    """A size without what names its attention kernel, and that kernel ("" for the usual one)."""
    text = flavor.strip().lower()
    found = _ATTENTION.search(text)
    return (text[: found.start()], found.group(1)) if found else (text, "")


def recipe_model(recipe: str) -> tuple[str, str]:
    """Family and size that a recipe function's name begins with, "" for what it does not tell.

    "llama3_8b_mxfp8" is llama3 of size 8b, "deepseek_v3_671b" is DeepSeek-V3.
    """
    found = _RECIPE.search(recipe.lower())
    if found is None:
        return "", ""
    family, rest = _FAMILY_OF.get(found.group(1), found.group(1)), found.group(2)
    known = [size for f, size in (*PRESETS, *SHAPES) if f == family]
    plain = {size.replace("-", "_").replace(".", "_"): size for size in known}
    return family, next((s for p, s in plain.items() if rest == p or rest.startswith(p + "_")), "")


def only_family(size: str) -> str:
    """The family of a size that one family alone has."""
    found = {f for f, s in PRESETS if s == size}
    return found.pop() if len(found) == 1 else ""


def registered(preset: str) -> tuple[str, str] | None:
    """Family and size of a preset, as the registry spells them; None where it has none."""
    found = _OTHER_NAMES.get(preset) or next((k for k, v in PRESETS.items() if v == preset), None)
    if found is None:
        return None
    family, size = found
    return family, _SPELLED.get(size, size.upper())
