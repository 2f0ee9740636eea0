import json
from dataclasses import replace

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Severity
from meshwright.model.catalogue import load, preset_config
from meshwright.model.config import model_from_config
from meshwright.plan.file import parse_job, write_job
from meshwright.train.model.beginning import beginning
from meshwright.train.model.configuration import is_lost
from meshwright.train.remarks import remarks

KEYS = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
THETA = {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0}}


def folder_of(path, keys, *, weights=True):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(keys))
    if weights:
        (path / "model.safetensors").write_bytes(b"")
    return str(path)


def test_weights_bring_what_a_plan_of_sizes_does_not_say(tmp_path):
    hf = folder_of(tmp_path / "hf", KEYS | THETA | {"rms_norm_eps": 1e-3})
    written = replace(model_from_config(KEYS), source="", name="mine")
    found = beginning(written, weights=hf)
    assert found.findings == ()
    assert found.keys["rope_parameters"]["rope_theta"] == 777.0
    assert found.keys["rms_norm_eps"] == 1e-3


def test_keys_that_the_plan_does_not_state_come_with_the_weights(tmp_path):
    hf = folder_of(tmp_path / "hf", KEYS | THETA)
    found = beginning(model_from_config(KEYS), section=KEYS, weights=hf)
    assert found.findings == ()
    assert found.keys["rope_parameters"]["rope_theta"] == 777.0


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", 64), ("num_hidden_layers", 3), ("vocab_size", 96), ("intermediate_size", 56)],
)
def test_sizes_of_other_weights_are_told_with_both_values(tmp_path, key, value):
    hf = folder_of(tmp_path / "hf", KEYS | {key: value})
    errors = beginning(model_from_config(KEYS), section=KEYS, weights=hf).findings
    assert errors
    assert all(f.severity is Severity.ERROR for f in errors)
    assert any(f"is {value} in {hf}" in f.message and str(KEYS[key]) in f.message for f in errors)


@pytest.mark.parametrize("spelling", [{"rope_theta": 500.0}, {"rms_norm_eps": 1e-2}])
def test_a_key_that_plan_and_weights_state_differently_is_told(tmp_path, spelling):
    hf = folder_of(tmp_path / "hf", KEYS | THETA | {"rms_norm_eps": 1e-6})
    (name,) = spelling
    own = KEYS | spelling
    (error,) = beginning(model_from_config(own), section=own, weights=hf).findings
    assert error.key == name
    assert "in the plan" in error.message


def test_one_rotary_base_in_two_spellings_is_the_same(tmp_path):
    hf = folder_of(tmp_path / "hf", KEYS | THETA)
    own = KEYS | {"rope_theta": 777.0, "rope_scaling": None}
    assert beginning(model_from_config(own), section=own, weights=hf).findings == ()


def test_no_folder_of_weights_is_refused_at_once(tmp_path):
    with pytest.raises(InvalidInput, match="is no folder"):
        beginning(model_from_config(KEYS), section=KEYS, weights=str(tmp_path / "none"))
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(InvalidInput, match="pickle"):
        beginning(model_from_config(KEYS), section=KEYS, weights=str(tmp_path))


def test_a_run_is_gone_on_with_by_its_own_configuration(tmp_path):
    run = folder_of(tmp_path / "run", KEYS | THETA, weights=False)
    written = replace(model_from_config(KEYS), source="", name="mine")
    assert "rope_parameters" not in beginning(written, run=run).keys  # nothing to go on from
    (tmp_path / "run" / "step-3").mkdir()
    assert beginning(written, run=run).keys == KEYS | THETA
    other = model_from_config(KEYS | {"hidden_size": 64})
    (error, *_) = beginning(other, run=run).findings
    assert "hidden_size" in error.message


def test_a_config_that_a_plan_was_made_from_is_found_beside_the_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path, KEYS | THETA, weights=False)
    model = load("config.json")
    assert beginning(model, folder=tmp_path).keys == KEYS | THETA
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert beginning(model, folder=tmp_path).keys == KEYS | THETA
    (error,) = beginning(model, folder=elsewhere).findings
    assert "rotary base" in error.message
    assert is_lost(model, folder=elsewhere)


def test_a_config_that_has_changed_since_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path, KEYS, weights=False)
    model = load("config.json")
    folder_of(tmp_path, KEYS | {"hidden_size": 64}, weights=False)
    (error,) = beginning(model, folder=tmp_path).findings
    assert "reads otherwise" in error.message


def test_one_architecture_under_two_names_is_no_difference(tmp_path):
    keys = preset_config("kimi-k2")
    hf = folder_of(tmp_path / "hf", keys | {"model_type": "deepseek_v3"})
    assert beginning(load("kimi-k2"), section={"name": "kimi-k2"}, weights=hf).findings == ()


def test_a_preset_takes_the_configuration_of_its_weights(tmp_path):
    keys = preset_config("llama-3-8b") | {"rope_theta": 12345.0}
    hf = folder_of(tmp_path / "hf", keys)
    found = beginning(load("llama-3-8b"), section={"name": "llama-3-8b"}, weights=hf)
    assert found.findings == ()
    assert found.keys["rope_theta"] == 12345.0


JOB = """
[model]
name = "{name}"
[cluster]
gpu = "H100:8"
nodes = 16
[workload]
seq_len = 4096
global_batch = 128
[plan]
dp = 128
"""


@pytest.mark.parametrize(("name", "layers"), [("deepseek-v3", 1), ("llama-3-8b", 0)])
def test_multi_token_prediction_is_said_not_to_be_trained(name, layers):
    job = parse_job(JOB.format(name=name))
    found = remarks(job)
    assert [f.value for f in found] == [layers] * bool(layers)
    assert all(f.severity is Severity.WARNING for f in found)
    assert remarks(parse_job(write_job(job))) == found
