import json
from dataclasses import replace

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from meshwright.base.errors import MeshwrightError  # noqa: E402
from meshwright.model.catalogue import load, preset_config, presets  # noqa: E402
from meshwright.model.config import model_from_config  # noqa: E402
from meshwright.train.families import model_type_of  # noqa: E402
from meshwright.train.model.configuration import (  # noqa: E402
    configuration_from_keys,
    configuration_of,
    shrunk,
)
from meshwright.train.model.keys import NotAConfiguration, keys_of  # noqa: E402
from meshwright.train.model.tiny import FAMILIES, tiny_config  # noqa: E402

OURS = [name for name in presets() if model_type_of(preset_config(name)["model_type"]) in FAMILIES]


def renamed(model, **changes):
    return replace(model, name="mine", source="", **changes)


def plain_keys(config):
    ours = config.to_dict()
    return {k: v for k, v in ours.items() if k not in ("architectures", "dtype")}


@pytest.mark.parametrize("name", OURS)
def test_a_preset_written_out_block_by_block_gives_the_same_architecture(name):
    model = load(name)
    keys = keys_of(renamed(model))
    read = model_from_config(keys)
    assert renamed(read) == renamed(model, assumptions=read.assumptions)


@pytest.mark.parametrize("name", ["llama-3-8b", "gemma-3-27b", "deepseek-v3", "phi-3-mini"])
def test_a_preset_by_name_and_by_model_gives_one_configuration(name):
    by_name = configuration_of(load(name), section={"name": name})
    by_model = configuration_of(load(name))
    assert plain_keys(by_name) == plain_keys(by_model)
    assert by_name.hidden_size == preset_config(name)["hidden_size"]


def test_keys_in_the_plan_file_and_a_path_are_kept_to_the_last(tmp_path):
    keys = {**preset_config("llama-3-8b"), "rope_theta": 123456.0, "rms_norm_eps": 1e-3}
    (tmp_path / "config.json").write_text(json.dumps(keys))
    model = model_from_config(keys)
    by_keys = configuration_of(model, section=keys)
    by_path = configuration_of(model, section={"path": "config.json"}, folder=tmp_path)
    assert by_keys.rms_norm_eps == 1e-3
    assert by_keys.rope_parameters["rope_theta"] == 123456.0
    assert plain_keys(by_keys) == plain_keys(by_path)


def test_a_model_read_from_a_file_finds_its_file_again(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**preset_config("llama-3-8b"), "rms_norm_eps": 1e-3}))
    assert configuration_of(load(path)).rms_norm_eps == 1e-3


def test_the_text_part_of_a_multimodal_configuration_is_taken():
    keys = {"model_type": "gemma3", "text_config": preset_config("gemma-3-4b")}
    config = configuration_from_keys(keys)
    assert config.model_type == "gemma3_text"


def test_published_weights_and_code_leave_no_trace():
    keys = {
        **preset_config("deepseek-v3"),
        "auto_map": {"AutoModel": "evil.Model"},
        "quantization_config": {"quant_method": "fp8"},
        "torch_dtype": "bfloat16",
    }
    config = configuration_from_keys(keys)
    assert not hasattr(config, "auto_map")
    assert not hasattr(config, "quantization_config")


def test_what_transformers_refuses_is_an_error_with_a_hint():
    with pytest.raises(MeshwrightError, match="no configuration of model_type 'nonesuch'") as error:
        configuration_from_keys({"model_type": "nonesuch"})
    assert error.value.hint
    with pytest.raises(MeshwrightError, match="hidden_size"):
        configuration_from_keys({"model_type": "llama", "hidden_size": "wide"})


def test_blocks_that_no_configuration_describes_are_refused():
    model = load("llama-3-8b")
    block = model.layers[0]
    other = replace(model.runs[0], block=replace(block, norms=4), count=1)
    with pytest.raises(NotAConfiguration, match="runs"):
        keys_of(replace(model, runs=(other, *model.runs)))
    with pytest.raises(NotAConfiguration, match="family 'bloom'"):
        keys_of(load("bloom-176b"))


# shrunk


@pytest.mark.parametrize("name", OURS)
def test_a_shrunk_model_is_tiny_and_of_the_same_structure(name):
    config = configuration_of(load(name))
    small = shrunk(config, layers=4, heads_multiple=2, experts_multiple=4)
    model = transformers.AutoModelForCausalLM.from_config(small)
    assert sum(p.numel() for p in model.parameters()) < 200_000
    assert small.model_type == config.model_type
    assert small.tie_word_embeddings == config.tie_word_embeddings
    assert (small.num_key_value_heads % 2 == 0) or config.num_key_value_heads == 1
    assert _traits(small) == _traits(config)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-20b"])
def test_a_shrunk_model_was_trained_for_less_than_its_length(name, caplog):
    """transformers warns where it was not."""
    config = configuration_of(load(name))
    whole, small = config.rope_parameters, shrunk(config).rope_parameters
    trained_for = "original_max_position_embeddings"
    assert 1 <= small[trained_for] < shrunk(config).max_position_embeddings
    assert {**small, trained_for: 0} == {**whole, trained_for: 0}
    assert not caplog.records


def _traits(config):
    """What must survive shrinking."""
    model = model_from_config({**config.to_dict(), "model_type": config.model_type})
    blocks = {
        (
            block.is_moe,
            block.norms,
            block.attention.window is not None,
            block.attention.qk_norm,
            block.attention.qkv_bias,
            block.attention.sinks,
            block.attention.q_lora_rank is not None,
            block.attention.is_latent,
            block.attention.num_key_value_heads == block.attention.num_attention_heads,
            block.is_moe and block.feed_forward.shared_intermediate_size > 0,
            block.is_moe and block.feed_forward.n_group > 1,
        )
        for block in model.layers
    }
    return blocks, model.tie_word_embeddings


def test_shrinking_divides_by_what_is_asked():
    config = shrunk(configuration_of(load("deepseek-v3")), layers=5, heads_multiple=8)
    assert config.num_hidden_layers == 5
    assert config.num_attention_heads % 8 == 0
    assert config.moe_intermediate_size % 8 == 0
    assert shrunk(tiny_config("mixtral"), experts_multiple=16).num_local_experts == 16
