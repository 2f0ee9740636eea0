"""The transformers configuration of a plan file's model, and a tiny one of the same structure.

What a user wrote is kept to the last key: the configuration behind a preset's name, the config.json
at a path, or the keys that stand in the plan file. Only a model written out block by block is
rebuilt from its sizes (`keys`). Nothing is fetched, and no code of a model's repository is run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.model.catalogue import load, preset_config, resolve
from meshwright.train.families import model_type_of
from meshwright.train.model.keys import keys_of
from meshwright.train.model.unsupported import unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PretrainedConfig

    from meshwright.model.architecture import Model

CONFIG = "config.json"
# of the weights or the code that a publisher shipped, not of the model
NOT_OF_THE_MODEL = frozenset(
    {
        "_attn_implementation",
        "_experts_implementation",
        "_name_or_path",
        "architectures",
        "auto_map",
        "dtype",
        "model_type",
        "quantization_config",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
_MOST_WORDS = 300  # of an error that may list all architectures
_NESTED = ("text_config", "llm_config", "language_config")


def configuration_of(
    model: Model, *, section: Mapping[str, Any] | None = None, folder: str | Path = "."
) -> PretrainedConfig:
    """The configuration of a job's model, from the keys that `keys_behind` finds.

    MeshwrightError when transformers has no such architecture or refuses a value.
    """
    return configuration_from_keys(keys_behind(model, section=section, folder=folder))


def keys_behind(
    model: Model, *, section: Mapping[str, Any] | None = None, folder: str | Path = "."
) -> Mapping[str, Any]:
    """The config.json keys of a job's model, from the [model] section of its plan file where given.

    `folder` is that of the plan file. Without a section, and for a model written out block by
    block, a model that equals a preset or the config.json it was read from gets that one's keys,
    and any other is rebuilt from its blocks. NotAConfiguration when that cannot be done. Nothing
    of transformers is imported.
    """
    if section and "runs" not in section:
        return _keys_in(section, Path(folder))
    return _known_keys(model, Path(folder)) or keys_of(model)


def is_lost(
    model: Model, *, section: Mapping[str, Any] | None = None, folder: str | Path = "."
) -> bool:
    """Whether a model written out block by block came from a config.json that is not found again.

    What its blocks do not say, as the rotary base, would then be the default of its family.
    """
    if section and "runs" not in section:
        return False
    return model.source.endswith(".json") and _known_keys(model, Path(folder)) is None


def configuration_from_keys(keys: Mapping[str, Any]) -> PretrainedConfig:
    """The configuration of the keys of a config.json, a multimodal model's text part alone.

    InvalidInput where transformers refuses them, or the engine (`unsupported`).
    """
    from transformers import AutoConfig

    text = text_part(keys)
    wrong = unsupported(text)
    if wrong:
        raise InvalidInput(wrong, hint=wrong[0].hint)
    kind = model_type_of(str(text.get("model_type") or "llama"))
    kept = {name: value for name, value in text.items() if name not in NOT_OF_THE_MODEL}
    try:
        return AutoConfig.for_model(kind, use_cache=False, **kept)
    except Exception as error:  # transformers raises errors of many kinds for a wrong value
        raise _refused(f"makes no configuration of model_type {kind!r}", error) from None


def model_of(config: PretrainedConfig, **options: Any) -> Any:
    """transformers' causal language model of a configuration, on torch's device of the moment.

    `options` are those of AutoModelForCausalLM.from_config. InvalidInput where the model's own
    code has no use for a value, as an activation that there is not.
    """
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_config(config, **options)
    except Exception as error:  # KeyError, AssertionError, ..: whatever its layers raise
        raise _refused(f"makes no model of this {config.model_type}", error) from None


def _refused(what: str, error: Exception) -> InvalidInput:
    """What transformers has against a configuration."""
    words = " ".join(str(error).split())
    hint = "mend the keys of [model], or name an architecture that transformers has"
    message = f"transformers {what}: {type(error).__name__}: {words[:_MOST_WORDS]}"
    return InvalidInput([Finding(message=message, key="model", hint=hint)], hint=hint)


def _keys_in(section: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """config.json keys behind a [model] section that names, or holds, a configuration."""
    if "path" in section:
        return file_keys(folder / str(section["path"]))
    if set(section) == {"name"}:
        return _named_keys(str(section["name"]))
    return {name: value for name, value in section.items() if name != "name"}


def _named_keys(name: str) -> Mapping[str, Any]:
    """Keys of a preset; a name may be a path as well, as in `catalogue.load`."""
    path = Path(name)
    if path.suffix == ".json" or path.exists():
        return file_keys(path)
    return preset_config(resolve(name))


def file_keys(path: Path) -> Mapping[str, Any]:
    """Keys of a config.json, or of the one in a folder."""
    from meshwright.base.locate import read

    document = read(path / CONFIG if path.is_dir() else path, syntax="json")
    keys: Mapping[str, Any] = document.data
    return keys


def _known_keys(model: Model, folder: Path) -> Mapping[str, Any] | None:
    """Keys of the preset or file that a model came from, if it still reads to the same model.

    A file may lie where it lay, in the folder of the plan file, or there as its config.json.
    """
    places = [model.source, model.name]
    if model.source.endswith(".json"):
        places[1:1] = [str(folder / model.source), str(folder / CONFIG)]
    for name in places:
        try:
            if name and _same(load(name), model):
                return _named_keys(name)
        except MeshwrightError:
            continue
    return None


def _same(found: Model, model: Model) -> bool:
    """Whether two models differ in nothing but what they are called and where they lay."""
    return replace(found, name=model.name, source=model.source) == model


def text_part(keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text model's keys of a multimodal configuration, or the keys themselves."""
    for name in _NESTED:
        nested = keys.get(name)
        if isinstance(nested, dict):
            tied = {k: keys[k] for k in ("tie_word_embeddings",) if k in keys}
            kind = {"model_type": keys["model_type"]} if "model_type" in keys else {}
            return {**kind, **tied, **nested}
    return keys


# Shrinking

_HIDDEN, _FEED_FORWARD, _EXPERT, _VOCABULARY = 32, 48, 24, 96
_HEAD_DIM, _WINDOW, _EXPERTS, _TOP_K, _LATENT = 8, 8, 8, 2, 16
_LENGTH = 128
_TRAINED_FOR = "original_max_position_embeddings"


def shrunk(
    config: PretrainedConfig,
    *,
    layers: int = 4,
    heads_multiple: int = 1,
    experts_multiple: int = 1,
) -> PretrainedConfig:
    """A tiny configuration of the same family and structure: what `verify` runs in seconds.

    Kept: kind of attention (grouped, latent, windowed, with norms, biases, sinks), ties, dense and
    routed layers, shared experts, router, caps, activations, rotary scaling. Key/value heads and
    widths are multiples of `heads_multiple` (tp, times cp where heads are split over it), experts
    of `experts_multiple` (ep).
    """
    keys = {k: v for k, v in config.to_dict().items() if k not in NOT_OF_THE_MODEL}
    share = _LENGTH / max(keys.get("max_position_embeddings") or _LENGTH, _LENGTH)
    keys |= _few_layers(keys, layers) | _few_heads(keys, heads_multiple)
    keys |= _narrow(keys, heads_multiple) | _few_experts(keys, experts_multiple)
    keys |= _few_tokens(keys, keys["vocab_size"]) | _short_rotary(keys, share)
    return configuration_from_keys({**keys, "model_type": config.model_type})


def _multiple(least: int, of: int) -> int:
    """The least multiple of `of` that is not below `least`."""
    return -(-least // of) * of


def _stated(keys: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `sizes` that the configuration states."""
    return {name: size for name, size in sizes.items() if keys.get(name) is not None}


def _few_layers(keys: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """The first layers, or every kind by turns where the first ones would miss one."""
    dense = keys.get("mlp_only_layers") or ()
    found = _stated(
        keys,
        {
            "num_hidden_layers": layers,
            "first_k_dense_replace": min(keys.get("first_k_dense_replace") or 0, 1),
            "mlp_only_layers": [i for i in dense if i < layers],
            "max_window_layers": min(keys.get("max_window_layers") or 0, layers // 2),
        },
    )
    kinds = keys.get("layer_types")
    if kinds:
        distinct = list(dict.fromkeys(kinds))
        found["layer_types"] = [distinct[i % len(distinct)] for i in range(layers)]
    return found


def _few_heads(keys: Mapping[str, Any], multiple: int) -> dict[str, Any]:
    """As many key/value heads as heads, one of them, or half as many, as the model has."""
    heads, kv = keys["num_attention_heads"], keys.get("num_key_value_heads")
    kv_heads = 1 if kv == 1 else _multiple(2, multiple)
    count = _multiple(4, max(kv_heads, multiple))
    return {
        "num_attention_heads": count,
        **_stated(keys, {"num_key_value_heads": count if kv == heads else kv_heads}),
    }


def _narrow(keys: Mapping[str, Any], multiple: int) -> dict[str, Any]:
    """Small widths that divide by `multiple`; heads as wide as hidden_size where they were."""
    heads = _few_heads(keys, multiple)["num_attention_heads"]
    wide = keys.get("head_dim") and keys["head_dim"] * keys["num_attention_heads"]
    head_dim = _HEAD_DIM if wide in (None, keys["hidden_size"]) else 2 * _HEAD_DIM
    sizes = {
        "hidden_size": _HEAD_DIM * heads,
        "intermediate_size": _multiple(_FEED_FORWARD, multiple),
        "moe_intermediate_size": _multiple(_EXPERT, multiple),
        "vocab_size": _multiple(_VOCABULARY, multiple),
        "head_dim": head_dim,
        "query_pre_attn_scalar": head_dim,
        "sliding_window": _WINDOW,
        "q_lora_rank": _LATENT,
        "kv_lora_rank": _LATENT,
        "qk_rope_head_dim": _HEAD_DIM,
        "qk_nope_head_dim": _HEAD_DIM,
        "v_head_dim": _HEAD_DIM,
        "max_position_embeddings": _LENGTH,
        "initializer_range": 0.2,  # weights that matter at this width: a wrong one is seen
    }
    return _stated(keys, sizes)


def _few_experts(keys: Mapping[str, Any], multiple: int) -> dict[str, Any]:
    """Eight experts or some more, in two groups where the router limits a token to groups."""
    count = _multiple(_EXPERTS, multiple)
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    groups = min(keys.get("n_group") or 0, 2)
    used = 1 if (keys.get("topk_group") or 0) < (keys.get("n_group") or 0) else groups
    sizes = {
        "num_experts_per_tok": min(keys.get("num_experts_per_tok") or 0, _TOP_K),
        "n_group": groups,
        "topk_group": used,
        "n_shared_experts": min(keys.get("n_shared_experts") or 0, 1),
        **dict.fromkeys(names, count),
    }
    return _stated(keys, sizes)


def _few_tokens(keys: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Special tokens inside the vocabulary; a padding token stays one, for its row is not trained.

    The end tokens may be several.
    """

    def inside(token: Any) -> Any:
        many = isinstance(token, list)
        return [inside(t) for t in token] if many else min(token, vocab_size - 1)

    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {name: inside(keys[name]) for name in names if keys.get(name) is not None}


def _short_rotary(keys: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Rotary parameters of a model that is cut to `share` of its length.

    Factors listed per width of a head (LongRoPE) go; the length that a scaled embedding was trained
    for shrinks as the model's does.
    """
    rotary = keys.get("rope_parameters")
    if not rotary:
        return {}
    if "long_factor" in rotary:
        kept = {k: rotary[k] for k in ("rope_theta", "partial_rotary_factor") if k in rotary}
        return {"rope_parameters": {"rope_type": "default", **kept}}
    return {"rope_parameters": _cut_lengths(rotary, share)}


def _cut_lengths(rotary: Mapping[str, Any], share: float) -> dict[str, Any]:
    """Rotary parameters of one kind of layer, or of several by kind, at `share` of the length."""
    cut: dict[str, Any] = {
        k: _cut_lengths(v, share) if isinstance(v, dict) else v for k, v in rotary.items()
    }
    if cut.get(_TRAINED_FOR):
        cut[_TRAINED_FOR] = max(int(cut[_TRAINED_FOR] * share), 1)
    return cut
