"""The preset catalogue: exact published counts, and how names and paths are found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from meshwright.base.errors import InvalidInput, UnknownName
from meshwright.model.catalogue import (
    catalogue,
    load,
    preset_checked,
    preset_config,
    presets,
    resolve,
)
from meshwright.model.count import parameters

if TYPE_CHECKING:
    from pathlib import Path

# what transformers 5.24 counts on the meta device, or the publisher's model card prints
EXACT = {
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "deepseek-v3": 671_026_404_352,
    "mixtral-8x7b": 46_702_792_704,
    "gemma-3-27b": 27_009_346_304,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2-xl": 1_557_611_200,
    "bloom-176b": 176_247_271_424,
    "opt-350m": 331_196_416,
    "gpt-neox-20b": 20_554_567_680,
    "phi-2": 2_779_683_840,
    "tinyllama-1.1b": 1_100_048_384,
    "olmo-2-32b": 32_234_279_936,
    "qwen2.5-72b": 72_706_203_648,
    "starcoder2-15b": 15_957_889_024,
}

# billions as published: total and active
PUBLISHED = {
    "deepseek-v3": (671, 37),
    "deepseek-v2": (236, 21),
    "kimi-k2": (1026, 32.5),
    "qwen3-235b-a22b": (235, 22),
    "qwen2-57b-a14b": (57.4, 14.2),
    "glm-4.5": (355, 32),
    "glm-4.5-air": (106, 12),
    "llama-4-scout": (108, 17),
    "llama-4-maverick": (400, 17),
    "hunyuan-large": (389, 52),
    "hunyuan-a13b": (80, 13),
    "gpt-oss-120b": (117, 5.1),
    "grok-1-314b": (314, 84),
    "mixtral-8x22b": (141, 39),
    "phi-3.5-moe": (42, 6.6),
    "olmoe-1b-7b": (6.9, 1.3),
}


@pytest.mark.parametrize(("name", "count"), EXACT.items())
def test_exact_count(name: str, count: int) -> None:
    assert parameters(load(name), mtp=False).total == count


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_published_total_and_active(name: str, billions: tuple[float, float]) -> None:
    count = parameters(load(name), mtp=False)
    assert count.total / 1e9 == pytest.approx(billions[0], rel=0.01)
    # publishers round; GPT-OSS leaves the embedding out, GLM the head as well
    unsaid = {"gpt": count.embedding, "glm": count.embedding + count.head}.get(name[:3], 0)
    active = count.active - unsaid
    assert active / 1e9 == pytest.approx(billions[1], rel=0.04)


def test_mtp_weights_of_deepseek_v3() -> None:
    # the model card counts 14 B of MTP weights, of which 11.5 B are its own
    model = load("deepseek-v3")
    own = parameters(model).total - parameters(model, mtp=False).total
    assert own / 1e9 == pytest.approx(11.5, rel=0.02)


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_with_source_and_without_assumptions(name: str) -> None:
    model = load(name)
    assert model.name == name
    assert model.source
    assert model.assumptions == ()
    assert preset_checked(name)
    assert catalogue()[name]


def test_families_that_the_catalogue_must_hold() -> None:
    families = {preset_config(name)["model_type"] for name in presets()}
    assert families >= {
        "llama", "llama4_text", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral",
        "gemma", "gemma2", "gemma3_text", "phi", "phi3", "deepseek_v2", "deepseek_v3", "gpt_oss",
        "glm", "glm4", "glm4_moe", "nemotron", "falcon", "bloom", "mpt", "opt", "kimi_k2",
        "hunyuan", "hunyuan_v1_moe", "olmo", "olmo2", "olmo3", "gpt2", "gpt_neox", "grok-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("llama-3.1-70b", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("llama3-70b", "llama-3-70b"),
        ("LLAMA_3_70B", "llama-3-70b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("gpt-3-175b", "gpt3-175b"),
        ("bigscience/bloom", "bloom-176b"),
        ("openai-community/gpt2", "gpt2"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
    ],
)
def test_names_and_aliases(written: str, meant: str) -> None:
    assert resolve(written) == meant


def test_no_two_presets_share_a_name() -> None:
    for name in presets():
        assert resolve(name) == name


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        load("llama-3.1-71b")
    assert "llama-3.1-70b" in caught.value.suggestions
    assert "llama-3.1-70b" in caught.value.hint


def test_path_to_a_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(preset_config("qwen3-8b")))
    by_folder, by_file = load(folder), load(str(folder / "config.json"))
    assert by_folder == by_file
    assert by_folder.name == "my-model"
    assert parameters(by_folder).total == 8_190_735_360


def test_problems_of_a_file_come_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(
        '{\n "model_type": "llama",\n "hidden_size": -1,\n "num_hidden_layers": "32",\n'
        ' "num_attention_heads": 32,\n "intermediate_size": 1.5,\n "vocab_size": 1e30\n}\n'
    )
    with pytest.raises(InvalidInput) as caught:
        load(path)
    places = {(f.key, f.line) for f in caught.value.findings}
    assert places >= {
        ("hidden_size", 3),
        ("num_hidden_layers", 4),
        ("intermediate_size", 6),
        ("vocab_size", 7),
    }
    assert all(f.file == str(path) and f.reason for f in caught.value.findings)


def test_missing_file_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no-such"):
        load(tmp_path / "no-such.json")
