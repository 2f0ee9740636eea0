"""The library: the same verbs as the command line, lazily imported, nothing printed."""

from __future__ import annotations

import importlib

import pytest

import meshwright as mw
from meshwright.base.errors import InvalidInput, MeshwrightError, UnknownName
from meshwright.plan.file import write_job


@pytest.fixture(scope="module")
def result():
    return mw.plan(
        "llama-3-8b", "H100:8", nodes=1, seq_len=4096, global_batch=64, pins={"pp": 1, "tp": [1, 2]}
    )


def test_the_public_names_are_what_they_claim():
    for name in mw.__all__:
        assert getattr(mw, name) is not None
    assert set(dir(mw)) == set(mw.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mw.nothing  # noqa: B018


def test_the_plan_package_is_also_the_verb():
    assert mw.plan is importlib.import_module("meshwright.plan")
    assert mw.plan.plan.Plan is mw.Plan


def test_a_result_has_plans_reasons_and_a_table(result, capsys):
    assert result.best.plan.tp in (1, 2)
    assert result.best.plan.pp == 1
    assert result.best.prediction.step_time_s > 0
    assert sum(result.rejected.values()) == result.candidates - result.feasible
    assert [row["step_s"] for row in result.table()] == sorted(r["step_s"] for r in result.table())
    assert "Result(" in repr(result)
    assert "<table>" in result._repr_html_()
    assert capsys.readouterr() == ("", "")


def test_a_written_plan_predicts_the_same(result, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(write_job(result.best.job))
    assert mw.read_job(path) == result.best.job
    assert mw.predict(path).step_time_s == result.best.prediction.step_time_s
    assert [f for f in mw.check(path) if f.severity.label == "error"] == []


def test_nouns_pass_through():
    model, cluster = mw.load_model("llama-3-8b"), mw.cluster("H100:8", nodes=2)
    assert mw.load_model(model) is model
    assert mw.cluster(cluster) is cluster


def test_a_cluster_file_is_read(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('gpu = "H100:8"\nnodes = 2\n')
    assert mw.cluster(path).num_gpus == mw.cluster(str(path)).num_gpus == 16


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"global_batch": "4M"}, MeshwrightError, "does not say of what"),
        ({"global_batch": 0}, MeshwrightError, "of what"),
        ({"global_batch": -4}, MeshwrightError, "of what"),
        ({"global_batch": "1e25tok"}, MeshwrightError, "not possible"),
        ({"seq_len": "8k"}, MeshwrightError, "whole number"),
        ({"seq_len": 0}, MeshwrightError, "sequence length"),
        ({"seq_len": 10**12}, MeshwrightError, "sequence length"),
        ({"objective": "speed"}, UnknownName, "objective"),
        ({"stack": "none such"}, UnknownName, "stack"),
        ({"pins": {"tp": "eight"}}, InvalidInput, "whole number"),
        ({"bans": {"sched": "x"}}, InvalidInput, "no field"),
        ({"train_tokens": "many"}, MeshwrightError, "number"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(changes, error, says):
    arguments = {"seq_len": 4096, "global_batch": 64} | changes
    with pytest.raises(error, match=says):
        mw.plan("llama-3-8b", "H100:8", **arguments)


def test_refused_pins_name_rule_and_legal_values():
    from meshwright.api import refused_pins

    nothing = mw.plan("llama-3-8b", "H100:8", seq_len=4096, global_batch=64, pins={"tp": 3})
    assert nothing.best is None
    found = {f.code: f for f in refused_pins(nothing, {"tp": 3})}
    assert "tp = 2 or 4" in found["MOD101"].hint
    assert refused_pins(nothing, {"tp": 2}) == []
