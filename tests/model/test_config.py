"""Configurations: what is read, what is refused, and that refusals are complete."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.model.catalogue import load, preset_config, presets
from meshwright.model.config import InvalidConfig, model_from_config, readers
from meshwright.model.count import parameters
from meshwright.model.flops import CONVENTIONS, flops_per_token

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def problems_of(config: Any) -> dict[str, str]:
    """key -> reason of everything that is wrong with a configuration."""
    with pytest.raises(InvalidConfig) as caught:
        model_from_config(config)
    assert str(caught.value)
    return {problem.key: problem.reason for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-1, "negative"),
        (0, "is 0"),
        (10**30, "larger than any model"),
        (1e30, "larger than any model"),
        (math.nan, "not a finite number"),
        (math.inf, "not a finite number"),
        ("4096", "text"),
        (True, "true or false"),
        (4096.5, "a number where a whole number"),
        (4096.0, "decimal point"),
        ([4096], "list"),
        ({"a": 1}, "mapping"),
    ],
)
@pytest.mark.parametrize(
    "key",
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"],
)
def test_absurd_value(key: str, value: object, reason: str) -> None:
    found = problems_of({**LLAMA, key: value})
    assert set(found) == {key}
    assert reason in found[key]


def test_number_too_long_to_print() -> None:
    huge = 10**5000  # str() and repr() of it raise
    scout = preset_config("llama-4-scout")
    assert set(problems_of({**LLAMA, "hidden_size": huge})) == {"hidden_size"}
    assert set(problems_of({**LLAMA, "vocab_size": [huge]})) == {"vocab_size"}
    assert set(problems_of({**scout, "moe_layers": [huge]})) == {"moe_layers"}
    assert set(problems_of({**scout, "layer_types": [huge] * 20_000})) == {"layer_types"}
    assert set(problems_of({"model_type": huge})) == {"model_type"}
    assert set(problems_of(huge)) == {""}


def test_all_problems_at_once() -> None:
    config = {
        **LLAMA,
        "hidden_size": -4096,
        "num_hidden_layers": "32",
        "vocab_size": math.nan,
        "tie_word_embeddings": "yes",
        "hidden_act": 3,
    }
    del config["intermediate_size"]
    assert set(problems_of(config)) == {
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "tie_word_embeddings",
        "hidden_act",
        "intermediate_size",
    }


def test_hints_say_what_to_write() -> None:
    with pytest.raises(InvalidConfig) as caught:
        model_from_config({**LLAMA, "hidden_size": "4096", "num_key_value_heads": 5})
    hints = {problem.key: problem.hint for problem in caught.value.problems}
    assert hints["hidden_size"] == "write 4096 without quotes"
    assert "1, 2, 4, 8, 16, 32" in hints["num_key_value_heads"]


def test_missing_key_names_the_misspelled_one() -> None:
    config = {**LLAMA, "hiden_size": 4096}
    del config["hidden_size"]
    with pytest.raises(InvalidConfig) as caught:
        model_from_config(config)
    (problem,) = caught.value.problems
    assert problem.key == "hidden_size"
    assert problem.reason == "is missing"
    assert "hiden_size" in problem.hint


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"hidden_size": 4097}, "num_attention_heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "num_attention_heads"),
    ],
)
def test_contradiction(changes: dict[str, Any], key: str) -> None:
    assert key in problems_of({**LLAMA, **changes})


@pytest.mark.parametrize(
    ("preset", "changes", "key"),
    [
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 129}, "num_experts_per_tok"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [48]}, "mlp_only_layers"),
        ("deepseek-v3", {"num_experts_per_tok": 257}, "num_experts_per_tok"),
        ("deepseek-v3", {"kv_lora_rank": 0}, "kv_lora_rank"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"] * 3}, "layer_types"),
        ("gpt-oss-20b", {"layer_types": ["ful_attention"] * 24}, "layer_types"),
        (
            "gpt-oss-20b",
            {"layer_types": ["sliding_attention"] * 24, "sliding_window": None},
            "layer_types",
        ),
        ("hunyuan-a13b", {"moe_topk": [8, 4]}, "moe_topk"),
        ("hunyuan-a13b", {"moe_topk": []}, "moe_topk"),
        ("falcon-40b", {"num_kv_heads": 7}, "num_kv_heads"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
        ("llama-4-scout", {"moe_layers": "all"}, "moe_layers"),
    ],
)
def test_contradiction_of_a_family(preset: str, changes: dict[str, Any], key: str) -> None:
    assert set(problems_of({**preset_config(preset), **changes})) == {key}


def test_one_wrong_value_is_not_blamed_twice() -> None:
    assert set(problems_of({**LLAMA, "num_attention_heads": -3})) == {"num_attention_heads"}


def test_unknown_architecture_suggests_a_known_one() -> None:
    with pytest.raises(InvalidConfig) as caught:
        model_from_config({"model_type": "qwen3_mo"})
    (problem,) = caught.value.problems
    assert problem.key == "model_type"
    assert "qwen3_moe" in problem.hint


def test_unknown_but_llama_like_is_read_and_says_so() -> None:
    model = model_from_config({**LLAMA, "model_type": "zebra"})
    assert parameters(model).total == 8_030_261_248
    assert any("zebra" in text and "Llama-like" in text for text in model.assumptions)


@pytest.mark.parametrize(
    "foreign",
    [
        {"num_experts": 8},
        {"kv_lora_rank": 512},
        {"hybrid_override_pattern": "M-M*"},
        {"linear_num_key_heads": 16},
        {"mamba_num_heads": 8},
    ],
)
def test_unknown_of_another_kind_is_not_taken_for_llama(foreign: dict[str, Any]) -> None:
    assert set(problems_of({**LLAMA, "model_type": "zebra", **foreign})) == {"model_type"}


def test_null_is_not_called_missing() -> None:
    assert problems_of({**LLAMA, "intermediate_size": None}) == {"intermediate_size": "is null"}


@pytest.mark.parametrize("config", [None, [], "llama", 3, {}, {"model_type": 7}])
def test_no_configuration_at_all(config: object) -> None:
    assert problems_of(config)


def test_text_part_of_a_multimodal_model_with_class_defaults() -> None:
    model = model_from_config(
        {
            "model_type": "gemma3",
            "text_config": {"model_type": "gemma3_text", "hidden_size": 2560},
            "vision_config": {"hidden_size": 1152},
        }
    )
    assert model.hidden_size == 2560
    assert model.vocab_size == 262208
    assert model.tie_word_embeddings
    assert any("text_config" in text for text in model.assumptions)
    assert any("vocab_size = 262208" in text for text in model.assumptions)


def test_problem_of_a_nested_key_has_its_whole_path() -> None:
    config = {"model_type": "gemma3", "text_config": {"hidden_size": -1}}
    assert set(problems_of(config)) == {"text_config.hidden_size"}


def test_locate_turns_problems_into_findings() -> None:
    with pytest.raises(InvalidInput) as caught:
        model_from_config(
            {**LLAMA, "vocab_size": 0},
            locate=lambda p: Finding(message=p.reason, key=p.key, line=7),
        )
    assert [(f.key, f.line) for f in caught.value.findings] == [("vocab_size", 7)]


def test_windows_and_placement() -> None:
    gemma = load("gemma-3-27b").layers
    assert [layer.attention.window for layer in gemma[:7]] == [1024] * 5 + [None, 1024]
    oss = load("gpt-oss-20b").layers
    assert [layer.attention.window for layer in oss[:2]] == [128, None]
    scout = load("llama-4-scout").layers
    assert [layer.attention.chunked for layer in scout[:5]] == [True] * 3 + [False, True]
    maverick = load("llama-4-maverick").layers
    assert [layer.is_moe for layer in maverick[:4]] == [False, True, False, True]
    deepseek = load("deepseek-v3").layers
    assert [layer.is_moe for layer in deepseek[:4]] == [False] * 3 + [True]


# ---------------------------------------------------------------------------------------------
# properties

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**31), 10**31),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-2, 100) | st.text(max_size=3), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
PRESETS = st.sampled_from(presets())


@st.composite
def spoiled_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A preset's configuration with some keys gone and some replaced by anything."""
    config = preset_config(draw(PRESETS))
    keys = sorted(config)
    for key in draw(st.lists(st.sampled_from(keys), max_size=3)):
        config.pop(key, None)
    for key in draw(st.lists(st.sampled_from(keys), max_size=3)):
        config[key] = draw(JUNK)
    for key in draw(st.lists(st.sampled_from(["layer_types", "mlp_only_layers", "moe_layers"]))):
        config[key] = draw(JUNK)
    return config


@given(spoiled_configs())
@settings(max_examples=300, deadline=None)
def test_anything_is_read_or_refused(config: dict[str, Any]) -> None:
    try:
        model = model_from_config(config)
    except InvalidConfig as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        assert refused.problems
        assert all(problem.reason for problem in refused.problems)
        return
    count = parameters(model)
    assert 0 < count.active <= count.total
    assert all(value >= 0 for value in count.by_group.values())
    assert sum(count.by_group.values()) == count.total
    for name in CONVENTIONS:
        flops = flops_per_token(model, 4096, convention=name)
        assert math.isfinite(flops)
        assert flops > 0


@given(st.sampled_from(sorted(readers())), st.dictionaries(st.text(max_size=8), JUNK, max_size=4))
@settings(max_examples=100, deadline=None)
def test_nonsense_is_refused(kind: str, junk: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        model_from_config({**junk, "model_type": kind})


@given(PRESETS, st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_more_layers_never_shrink_a_model(name: str, more: int) -> None:
    config = preset_config(name)
    key = next(k for k in ("num_hidden_layers", "n_layer", "n_layers") if k in config)
    small = model_from_config(config)
    large = model_from_config({**config, key: config[key] + more})
    assert parameters(large).total > parameters(small).total
    assert flops_per_token(large, 4096) > flops_per_token(small, 4096)
