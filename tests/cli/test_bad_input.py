"""Broken input of every kind: a finding with its reason, never a traceback, never nonsense."""

from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.base.encode import to_toml
from meshwright.cli.main import run
from meshwright.model.catalogue import preset_config

PLAN = {
    "model": {"name": "llama-3-8b"},
    "cluster": {"gpu": "H100:8", "nodes": 2},
    "workload": {"seq_len": 4096, "global_batch": 256, "train_tokens": "1T"},
    "plan": {"tp": 2, "pp": 2, "vpp": 2, "schedule": "interleaved", "recompute": "selective"},
}
NASTY = st.one_of(
    st.sampled_from([0, -1, 1, 3, 10**30, 2**63, 1e308, -0.0, 0.5, "", "x", "8", True, False]),
    st.sampled_from(
        [[], [1], ["a", 2], {}, {"a": 1}, [[1]], "4Mtok", "-1tok", "H100", "\u0000", "ü" * 99]
    ),
    st.integers(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
COMMON = settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)


def outcome(arguments, capsys):
    code = run(arguments)
    out, err = capsys.readouterr()
    assert code in (0, 1, 2)
    assert "internal error" not in err
    assert not re.search(r"\b(nan|inf)\b", out)
    if code == 2:
        assert "error: " in err or "Error: " in err
        assert out == ""
    return code


def changed(tree, path, value):
    tree = copy.deepcopy(tree)
    node = tree
    for key in path[:-1]:
        node = node[key]
    if value is None:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return tree


PLACES = [(section, key) for section, keys in PLAN.items() for key in keys]
PLACES += [(section,) for section in PLAN] + [("plan", "ep"), ("plan", "layout"), ("stack",)]


@COMMON
@given(place=st.sampled_from(PLACES), value=NASTY, view=st.sampled_from(["stage", "term", "rank"]))
def test_any_plan_file_is_predicted_or_refused(tmp_path_factory, capsys, place, value, view):
    path = tmp_path_factory.mktemp("plan") / "plan.toml"
    path.write_text(to_toml(changed(PLAN, place, value)), encoding="utf-8")
    outcome(["predict", str(path), "--by", view], capsys)


CONFIGS = {name: preset_config(name) for name in ("llama-3-8b", "deepseek-v2-lite", "gpt-oss-20b")}


@settings(COMMON, max_examples=25)
@given(data=st.data(), name=st.sampled_from(sorted(CONFIGS)))
def test_any_config_is_planned_or_refused(tmp_path_factory, capsys, data, name):
    config = CONFIGS[name]
    key = data.draw(st.sampled_from(sorted(config)))
    value = data.draw(st.none() | NASTY)
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps(changed(config, (key,), value)), encoding="utf-8")
    arguments = ["plan", str(path), "--gpu", "H100:8", "--seq-len", "2048", "--global-batch", "32"]
    outcome([*arguments, "--pin", "pp=1", "--pin", "cp=1", "--top", "1"], capsys)


@COMMON
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_any_bytes_are_refused(tmp_path_factory, capsys, content):
    for name, arguments in {
        "plan.toml": ["predict"],
        "config.json": ["plan", "--gpu", "H100:8", "--seq-len", "8", "--global-batch", "8"],
    }.items():
        path = tmp_path_factory.mktemp("bytes") / name
        path.write_bytes(content)
        assert outcome([*arguments, str(path)], capsys) == 2


@pytest.mark.parametrize("size", ["0", "-5", "4096.5", "1e9", "99999999999999999999"])
def test_absurd_sequence_lengths(size, capsys):
    arguments = ["plan", "llama-3-8b", "--gpu", "H100:8", "--global-batch", "8", "--seq-len", size]
    assert outcome(arguments, capsys) == 2


def test_several_mistakes_are_reported_together(tmp_path, capsys):
    path = tmp_path / "config.json"
    config = {**CONFIGS["llama-3-8b"], "hidden_size": -4096, "vocab_size": "many"}
    path.write_text(json.dumps(config, indent=1))
    arguments = ["plan", str(path), "--gpu", "H100:8", "--seq-len", "8", "--global-batch", "8"]
    assert run(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("error: ") >= 2
    for key in ("hidden_size", "vocab_size"):
        line = next(n for n, t in enumerate(path.read_text().splitlines(), 1) if f'"{key}"' in t)
        assert f"{path}:{line}:" in err
