"""Odd but specific input: each is met by a sentence, its place, and what to type next."""

from __future__ import annotations

import json

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.cli.main import run
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import preset_config

SMALL = ["--seq-len", "2048", "--global-batch", "64", "--top", "1", "--pin", "cp=1"]
ON_H100 = ["--gpu", "H100:8", *SMALL]
CONFIG = preset_config("llama-3-8b")


def refused(arguments, capsys):
    """The error text of a command line that must end with 2, say why and what to type."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "internal error" not in err
    assert any(word in err for word in ("hint: ", "help: ", "--help"))
    return err


@pytest.mark.parametrize(
    "spec", ["H100:0", "H100:-1", "H100:8:8", ":8", "", " ", "H100:", "H100:x", "H100:٣", "H10:8"]
)
def test_gpu_specs(spec, capsys):
    refused(["plan", "llama-3-8b", "--gpu", spec, *SMALL], capsys)


def test_gpu_spec_may_have_spaces():
    assert cluster("h100 : 8", nodes=1) == cluster("H100:8", nodes=1)


@pytest.mark.parametrize("nodes", ["0", "-1", "1000001", "9" * 26, "x", "1.5", ""])
def test_numbers_of_nodes(nodes, capsys):
    refused(["plan", "llama-3-8b", "--nodes", nodes, *ON_H100], capsys)


@pytest.mark.parametrize(
    "model", ["zzz", "", "\0", "x" * 5000, "/nonexistent/config.json", "/dev/null", "a.yaml"]
)
def test_models(model, capsys):
    assert len(refused(["plan", model, *ON_H100], capsys)) < 600


def test_folder_without_a_config(tmp_path, capsys):
    assert "config.json" in refused(["plan", str(tmp_path), *ON_H100], capsys)


@pytest.mark.parametrize(
    "pin",
    [
        *("foo=1", "tp", "tp=", "=8", "tp=x", "tp=0", "tp=-1", "tp=1.5", "tp=8..2", "tp=true"),
        *("tp=1..999999", "tp=nan", "zero_stage=4", "schedule=gpip", "precision=int4", "tp=8,,"),
        *("layout=x", "offload_optimizer=inf", "lora_rank=-1", "TP=8", "tp==8", "tp=8\0"),
    ],
)
def test_pins(pin, capsys):
    refused(["plan", "llama-3-8b", *ON_H100, "--pin", pin], capsys)
    refused(["plan", "llama-3-8b", *ON_H100, "--ban", pin], capsys)


@pytest.mark.parametrize("tokens", ["0", "-1T", "nan", "inf", "x", "1e400"])
def test_lengths_of_the_run(tokens, capsys):
    refused(["plan", "llama-3-8b", *ON_H100, "--tokens", tokens], capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ends too early"),
        (json.dumps(CONFIG).encode("utf-16"), "UTF-16"),
        (json.dumps(CONFIG).encode("utf-16-le"), "UTF-16"),
        ('{"model_type": "é"}'.encode("latin-1"), "not UTF-8"),
        (b'{"a": 1, "a": 2}', "stands twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "too large"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a": "' + b"x" * 3_000_000 + b'"}', "larger than"),
        (b"[]", "no mapping"),
        (b"\xef\xbb\xbf{}\r\n{}", "more text"),
    ],
)
def test_files_that_are_no_configuration(content, said, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert said in refused(["plan", str(path), *ON_H100], capsys)


@pytest.mark.parametrize("value", [-1, 0, 1e30, 10**30, "4096", True, [4096], {"a": None}, 0.5])
@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size"])
def test_sizes_of_a_model(key, value, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, key: value}, indent=1))
    assert key in refused(["plan", str(path), *ON_H100], capsys)


@pytest.mark.parametrize("key", ["text_config", "llm_config"])
def test_a_text_part_that_is_no_mapping(key, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, key: [1]}))
    assert key in refused(["plan", str(path), *ON_H100], capsys)


@pytest.mark.parametrize("name", ["deepseek-v2-lite", "glm-4.5-air"])
def test_more_dense_layers_than_layers(name, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**preset_config(name), "first_k_dense_replace": 1000}))
    assert "first_k_dense_replace = 1000: is more than" in refused(
        ["plan", str(path), *ON_H100], capsys
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "zzz", *ON_H100],
        ["plan", "llama-3-8b", *ON_H100, "--pin", "foo=1"],
        ["plan", "llama-3-8b", *ON_H100, "--top", "0"],
        ["plan", "--json"],
        ["predict", "nowhere.toml"],
        ["show", "nothing"],
    ],
)
def test_errors_as_json(arguments, capsys):
    assert run([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    record = json.loads(err)
    assert record["version"] == 1
    error = record["error"]
    assert error["message"]
    assert error["hint"] or all(finding["hint"] for finding in error["findings"])


def test_unknown_fabrics_are_listed():
    with pytest.raises(MeshwrightError) as caught:
        cluster("H100:8", nodes=2, fabric="ib")
    assert "ib-ndr-400" in caught.value.hint


PLAN_FILE = """[model]
name = "llama-3-8b"
[cluster]
gpu = "H100:8"
nodes = 2
[workload]
seq_len = 4096
global_batch = 256
[plan]
"""


@pytest.mark.parametrize("view", ["stage", "rank", "term"])
@pytest.mark.parametrize("mesh", ["pp = 10000", "tp = 64", "cp = 4096", "tp = 2147483647"])
def test_a_mesh_beyond_the_cluster_has_findings_and_no_figures(mesh, view, tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(f"{PLAN_FILE}{mesh}\ndp = 1\n")
    assert run(["predict", str(path), "--by", view]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "error[" in err
    assert run(["predict", str(path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out).keys() == {"version", "findings"}
    assert err == ""


@pytest.mark.parametrize(
    "line",
    [
        *("pp = 10001", "vpp = 2147483647", "base_weight_bits = 1000", "param_bytes = 2147483647"),
        *("tp = true", "tp = nan", "tp = 1e3", "tp = 2020-01-01", "tp = [1]", "tp = 1\ntp = 2"),
    ],
)
def test_plan_files(line, tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN_FILE + line)
    assert f"{path}:" in refused(["predict", str(path)], capsys)


def test_fewer_rows_than_the_vocabulary(tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(f"{PLAN_FILE}padded_vocab_size = 5\n")
    assert run(["predict", str(path)]) == 1
    assert "5 rows hold no vocabulary of 128256" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('gpu = "H100:8"\nnodes = 2\ngpus_per_node = 4', "stated twice"),
        ('gpu = "H100:8"\nnodes = 1000000000', "1000000"),
        ('gpu = "H100:8"\nnodes = 2.0', "whole number"),
        ('gpu = ["H100"]\nnodes = 2', "neither a name nor a table"),
        ('gpu = "H10:8"\nnodes = 2', "did you mean"),
        ('gpu = "H100:8"\nnodez = 2', "did you mean"),
        ('gpu = "H100:8"\nnodes = 2\nprice_per_gpu_hour = nan', "price_per_gpu_hour"),
        ('gpu = "H100:8"\nnodes = 2\n[[links]]\nkind = "x"', "is no kind of link"),
        ("cluster = 3", "is no key"),
    ],
)
def test_cluster_files(text, said, tmp_path, capsys):
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    assert said in refused(["plan", "llama-3-8b", "--cluster", str(path), *SMALL], capsys)
