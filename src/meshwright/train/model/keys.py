"""The keys of a config.json for a `Model` that was written out block by block.

A plan file may hold a model as its blocks instead of a configuration. The blocks say every size but
not rotary bases, epsilons or scaling factors: those are the family's defaults in transformers. The
keys are read back with `model_from_config`, and a model that does not come back equal is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.model.architecture import Experts, Mlp
from meshwright.model.config import InvalidConfig, model_from_config
from meshwright.train.families import model_type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.model.architecture import Block, Model

_HINT = 'write [model] path = "config.json", or the keys of a config.json, in the plan file'


class NotAConfiguration(MeshwrightError):  # noqa: N818 - says what it is
    """A model that no configuration of a known family describes."""


def keys_of(model: Model) -> dict[str, Any]:
    """config.json keys that describe `model`, model_type among them; NotAConfiguration if none do.

    The source of each default is transformers 5.24, src/transformers/models/*/configuration_*.py.
    """
    kind = model_type_of(model.family)
    if kind not in _OWN:
        known = ", ".join(_OWN)
        reason = f"a model of family {model.family!r} is not built from its blocks (only {known})"
        raise NotAConfiguration(reason, hint=_HINT)
    keys = {"model_type": model.family, **_common(model), **_OWN[kind](model)}
    _check(model, keys)
    return keys


def _check(model: Model, keys: dict[str, Any]) -> None:
    """NotAConfiguration when the keys describe another model, with the field that differs."""
    try:
        read = model_from_config(keys, name=model.name)
    except InvalidConfig as error:
        raise NotAConfiguration(
            f"the model's blocks are no {model.family}: {error}", hint=_HINT
        ) from None
    differing = _differences(model, read)
    if differing:
        reason = f"the model's {', '.join(differing)} are not those of any {model.family} model"
        raise NotAConfiguration(reason, hint=_HINT)


def _differences(model: Model, read: Model) -> list[str]:
    """Fields in which two models differ, their names and sources apart."""
    same = replace(read, name=model.name, source=model.source, assumptions=model.assumptions)
    return [name for name in type(model).__slots__ if getattr(model, name) != getattr(same, name)]


def _common(model: Model) -> dict[str, Any]:
    """Keys that all families share."""
    first = model.layers[0]
    dense = _dense(model)
    attention = first.attention
    return {
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "intermediate_size": (dense or first.feed_forward).intermediate_size,
        "hidden_act": first.feed_forward.activation,
        "attention_bias": attention.output_bias,
        "tie_word_embeddings": model.tie_word_embeddings,
        **(
            {"max_position_embeddings": model.max_position_embeddings}
            if model.max_position_embeddings
            else {}
        ),
    }


def _dense(model: Model) -> Mlp | None:
    """The feed-forward network of the first dense block."""
    networks = (block.feed_forward for block in model.layers)
    return next((ff for ff in networks if isinstance(ff, Mlp)), None)


def _routed(model: Model) -> Experts:
    """The experts of the first routed block, NotAConfiguration where there is none."""
    networks = (block.feed_forward for block in model.layers)
    found = next((ff for ff in networks if isinstance(ff, Experts)), None)
    if found is None:
        raise NotAConfiguration(f"a {model.family} model has experts, this one none", hint=_HINT)
    return found


def _window(model: Model) -> int | None:
    """The one window of the model's sliding layers."""
    windows = {block.attention.window for block in model.layers} - {None}
    return max(windows) if windows else None  # type: ignore[type-var] # None was taken out


def _head_dim(model: Model) -> dict[str, Any]:
    return {"head_dim": model.layers[0].attention.head_dim}


def _llama(model: Model) -> dict[str, Any]:
    ff = model.layers[0].feed_forward
    return {**_head_dim(model), "mlp_bias": ff.bias}


def _one_window(model: Model) -> dict[str, Any]:
    """All layers slide, or none does."""
    return {**_head_dim(model), "sliding_window": _window(model)}


def _layer_types(model: Model) -> list[str]:
    def kind(block: Block) -> str:
        return "sliding_attention" if block.attention.window else "full_attention"

    return [kind(block) for block in model.layers]


def _mixed_windows(model: Model) -> dict[str, Any]:
    """Sliding and full layers by turns."""
    return {**_one_window(model), "layer_types": _layer_types(model)}


def _gemma(model: Model) -> dict[str, Any]:
    activation = model.layers[0].feed_forward.activation
    return {**_mixed_windows(model), "hidden_activation": activation}


def _qwen(model: Model) -> dict[str, Any]:
    keys = {**_head_dim(model), "use_sliding_window": _window(model) is not None}
    return {**keys, **_mixed_windows(model)} if keys["use_sliding_window"] else keys


def _qwen3_moe(model: Model) -> dict[str, Any]:
    routed = _routed(model)
    dense = [i for i, block in enumerate(model.layers) if not block.is_moe]
    return {
        **_head_dim(model),
        "use_sliding_window": _window(model) is not None,
        "sliding_window": _window(model),
        "num_experts": routed.num_experts,
        "num_experts_per_tok": routed.top_k,
        "moe_intermediate_size": routed.intermediate_size,
        "mlp_only_layers": dense,
    }


def _mixtral(model: Model) -> dict[str, Any]:
    routed = _routed(model)
    return {
        **_one_window(model),
        "num_local_experts": routed.num_experts,
        "num_experts_per_tok": routed.top_k,
    }


def _gpt_oss(model: Model) -> dict[str, Any]:
    return {**_mixtral(model), **_mixed_windows(model)}


def _dense_first(model: Model) -> dict[str, Any]:
    """Dense layers first, then routed ones with shared experts."""
    routed = _routed(model)
    width = routed.intermediate_size
    kinds = [block.is_moe for block in model.layers]
    return {
        "n_routed_experts": routed.num_experts,
        "num_experts_per_tok": routed.top_k,
        "moe_intermediate_size": width,
        "n_shared_experts": routed.shared_intermediate_size // width,
        "first_k_dense_replace": kinds.index(True),
        "num_nextn_predict_layers": sum(run.count for run in model.mtp),
    }


def _deepseek_v3(model: Model) -> dict[str, Any]:
    attention, routed = model.layers[0].attention, _routed(model)
    return {
        **_dense_first(model),
        "n_group": routed.n_group or 1,
        "topk_group": routed.topk_group or 1,
        "q_lora_rank": attention.q_lora_rank,
        "kv_lora_rank": attention.kv_lora_rank,
        "qk_rope_head_dim": attention.qk_rope_head_dim,
        "qk_nope_head_dim": attention.head_dim - attention.qk_rope_head_dim,
        "v_head_dim": attention.v_head_dim,
    }


def _glm4_moe(model: Model) -> dict[str, Any]:
    attention = model.layers[0].attention
    return {
        **_dense_first(model),
        **_head_dim(model),
        "attention_bias": attention.qkv_bias,
        "use_qk_norm": attention.qk_norm == "head",
    }


_OWN: dict[str, Callable[[Model], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _one_window,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "gpt_oss": _gpt_oss,
    "deepseek_v3": _deepseek_v3,
    "gemma2": _gemma,
    "gemma3_text": _gemma,
    "phi3": _one_window,
    "olmo2": _head_dim,
    "glm4_moe": _glm4_moe,
}
