"""Families by model names, and the classes that FSDP wraps in them."""

from __future__ import annotations

from typing import Any

import pytest
from demand_examples import stated_value

from meshwright.frameworks.knobs import Knobs
from meshwright.rules.demand import suggested, verdict
from meshwright.rules.framework.transformers_wrapping import (
    FAMILIES,
    family_of,
    wrapped_class_is_the_models,
)

NAMES = {
    "meta-llama/Meta-Llama-3-8B-Instruct": "llama",
    "meta-llama/Llama-4-Scout-17B-16E": "llama4",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": "llama",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": "qwen2",
    "deepseek-ai/DeepSeek-R1": "deepseek_v3",
    "Qwen/Qwen2.5-7B": "qwen2",
    "Qwen/Qwen2.5-VL-7B-Instruct": "qwen2_5_vl",
    "Qwen/Qwen3-8B": "qwen3",
    "Qwen/Qwen3-30B-A3B": "qwen3_moe",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral",
    "google/gemma-2-9b": "gemma2",
    "google/gemma-7b": "gemma",
    "gpt2-xl": "gpt2",
    "EleutherAI/pythia-6.9b": "gpt_neox",
    "bert-base-cased": "bert",
    "roberta-large": "roberta",
    "distilbert-base-uncased": "distilbert",
    "my-own-model": "",
    "": "",
}


@pytest.mark.parametrize(("name", "family"), NAMES.items())
def test_a_name_means_a_family(name: str, family: str) -> None:
    assert family_of(name) == family


def _knobs(**values: Any) -> Knobs:
    return Knobs("accelerate", "", {n: stated_value(n, v) for n, v in values.items()}, facts={})


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_wraps_its_own_classes(family: str) -> None:
    for name in FAMILIES[family][1]:
        knobs = _knobs(fsdp_wrap_classes=name, model_family=family)
        assert verdict(wrapped_class_is_the_models, knobs) is False


@pytest.mark.parametrize("family", FAMILIES)
def test_another_familys_class_is_refused_and_repaired(family: str) -> None:
    other = "GPTJBlock" if family != "gptj" else "BloomBlock"
    knobs = _knobs(fsdp_wrap_classes=other, model_family=family)
    assert verdict(wrapped_class_is_the_models, knobs) is True
    repaired = suggested(wrapped_class_is_the_models, knobs)
    assert verdict(wrapped_class_is_the_models, _knobs(**repaired, model_family=family)) is False


def test_classes_of_a_program_of_its_own_are_left_alone() -> None:
    knobs = _knobs(fsdp_wrap_classes="MyBlock,Embedding", model_name="gpt2")
    assert verdict(wrapped_class_is_the_models, knobs) is False
    assert verdict(wrapped_class_is_the_models, _knobs(fsdp_wrap_classes="GPT2Block")) is False
