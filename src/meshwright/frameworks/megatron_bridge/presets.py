"""What Megatron-Bridge's own words mean: presets of precision, adapters, recipes.

Sources: src/megatron/bridge/training/mixed_precision.py and comm_overlap.py at 0.6.0; what every
recipe sets (bf16_mixed, the distributed optimizer, both overlaps) is taken as the default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks.meanings import Meanings
from meshwright.frameworks.megatron_lm.meaning import meaning
from meshwright.frameworks.setting import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config

_RECIPES = (
    (r"mxfp8|fp8_mx|fp8mx", "mxfp8"),
    (r"subchannel|fp8_sc|fp8sc", "blockwise"),
    (r"current_scaling|fp8_cs|fp8cs", "tensorwise"),
    (r"fp8", "delayed"),
)
_LORA_RANK = 32  # PEFT's default
_ATTENTION_ONLY = {"linear_qkv", "linear_proj", "linear_q", "linear_k", "linear_v"}
_RECIPE = pattern(r"^[a-z0-9_]+_(?:pretrain|finetune|sft|peft)_(?:\w+_)?(?:config|recipe)$")
_TAIL = pattern(
    r"_(?:pretrain|finetune|sft|peft|low_precision|\d+gpu|bf16|fp8\w*|config|recipe).*$"
)


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The variables that the table alone does not give."""
    m = Meanings(config, values)
    _precision(m)
    _activation(m)
    meaning(m)
    adapters(m)
    _model_name(m)
    return m.given


def _precision(m: Meanings) -> None:
    """Precision as a preset's name or as settings of its own; bf16_mixed where nothing says."""
    name = m.value("mixed_precision")
    if isinstance(name, str):
        preset(m, name)
    elif not any(m.stating(v) for v in ("bf16", "fp16")):
        m.given["bf16"] = Value(value=True, default=True)
    if m.stating("fp8_format") and not m.stating("fp8_recipe") and not isinstance(name, str):
        m.follow("fp8_recipe", "tensorwise", "fp8_format")
    if m.value("accumulate_allreduce_grads_in_fp32") is False:
        m.follow("grad_reduce_in_bf16", True, "accumulate_allreduce_grads_in_fp32")


def preset(m: Meanings, name: str) -> None:
    """What a preset such as "bf16_with_mxfp8_mixed" or "fp8_cs" sets."""
    word = name.lower().replace("-", "_")
    half = "fp16" if word.startswith(("fp16", "16")) else "bf16"
    if not word.startswith(("fp32", "32")):
        m.follow(half, True, "mixed_precision")
    recipe = next((r for pattern, r in _RECIPES if re.search(pattern, word)), None)
    if "fp4" in word:
        m.follow("fp4_format", "e2m1", "mixed_precision")
    elif recipe is not None:
        m.follow("fp8_format", "e4m3" if recipe == "mxfp8" else "hybrid", "mixed_precision")
        m.follow("fp8_recipe", recipe, "mixed_precision")
        if not m.stating("fp8_param_gather"):
            m.follow("fp8_param_gather", recipe != "blockwise", "mixed_precision")


def _activation(m: Meanings) -> None:
    """An activation given as a function is named by its last part."""
    name = m.value("hidden_act")
    if isinstance(name, str):
        word = name.rsplit(".", 1)[-1].lower()
        m.follow("hidden_act", {"squared_relu": "relu2"}.get(word, word), "hidden_act")


def adapters(m: Meanings) -> None:
    """Low-rank adapters, from their rank or from the scheme's name."""
    scheme = m.field("peft")
    named = isinstance(scheme, str) and scheme.lower() in ("lora", "dora", "canonical_lora")
    rank = m.value("lora_rank")
    if named and rank is None:
        m.give("lora_rank", _LORA_RANK, "peft")
    targets = m.value("lora_target_modules")
    if isinstance(targets, list) and targets:
        m.follow("lora_all_linear", not set(targets) <= _ATTENTION_ONLY, "lora_target_modules")


def _model_name(m: Meanings) -> None:
    """The model that a recipe's name begins with, and the GPUs that it is made for."""
    name = m.value("model_name")
    named = [p for p in m.config.programs if _RECIPE.search(p)]
    if isinstance(name, str) and "/" not in name:
        m.follow("model_name", _TAIL.sub("", name), "model_name")
    elif name is None and len(named) == 1:
        m.follow("model_name", _TAIL.sub("", named[0]))
    made_for = re.search(r"_(\d{1,5})gpu_([a-z]+\d+)", named[0]) if len(named) == 1 else None
    if made_for and m.value("num_gpus") is None:
        m.follow("num_gpus", int(made_for.group(1)))
        m.follow("gpu_name", made_for.group(2))
