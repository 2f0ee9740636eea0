"""Configurations of public recipes: read without complaint, and the same when written again."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from meshwright.api.changed import differences
from meshwright.api.checking import Given, cluster_of, stated
from meshwright.api.converting import again_of, conversion
from meshwright.base.finding import Severity
from meshwright.frameworks.framework import framework
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.text import syntax_of
from meshwright.rules.lint import lint

FOLDER = Path(__file__).parent / "recipes"
RECIPES = tomllib.loads((FOLDER / "recipes.toml").read_text(encoding="utf-8"))["recipe"]


def read(entry):
    given = Given(**{k: entry[k] for k in ("model", "gpus", "nodes", "sets") if k in entry})
    (found,) = read_files([FOLDER / name for name in entry["files"]])
    reading, model = stated(found, given)
    return reading, draft(reading, model=model, cluster=cluster_of(reading, given))


@pytest.fixture(params=RECIPES, ids=lambda entry: entry["files"][0])
def recipe(request):
    return request.param, *read(request.param)


def test_there_are_recipes_of_many_frameworks():
    assert len({entry["framework"] for entry in RECIPES}) >= 16
    named = {name for entry in RECIPES for name in entry["files"]}
    assert named == {path.name for path in FOLDER.iterdir()} - {"recipes.toml"}


def test_every_file_names_its_source_or_is_json():
    for path in FOLDER.iterdir():
        if syntax_of(path.name, "") != "json" and path.name != "recipes.toml":
            head = path.read_text(encoding="utf-8").split("\n")[:4]
            assert any(line.startswith("# ") for line in head), path.name


def test_it_is_recognized_and_every_key_is_known(recipe):
    entry, reading, drafted = recipe
    assert reading.config.framework.name == entry["framework"]
    assert [s.spelled for s in reading.config.unknown] == []
    assert not drafted.problems
    assert drafted.missing == ()


def test_it_has_no_error(recipe):
    _, reading, drafted = recipe
    found = lint(reading, model=drafted.job.model, cluster=drafted.job.cluster, edits=False)
    assert [f.message for f in found.findings if f.severity is Severity.ERROR] == []


def test_it_reads_back_to_the_same_job(recipe):
    entry, reading, drafted = recipe
    target = framework(entry["framework"])
    version = reading.config.version
    found = conversion(reading, drafted, target, version)
    assert not found.refused
    again = again_of(found.files, drafted.job, target, version)
    assert not again.config.unknown
    assert not [f for f in again.config.findings if f.severity is Severity.ERROR]
    after = draft(again, model=drafted.job.model, cluster=drafted.job.cluster).job
    assert differences(drafted.job, after) == {}
    assert after.workload.seq_len == drafted.job.workload.seq_len
    assert after.workload.global_batch_size == drafted.job.workload.global_batch_size
    assert found.after.peak_bytes == pytest.approx(found.before.peak_bytes, rel=1e-6)
    assert found.after.step_time_s == pytest.approx(found.before.step_time_s, rel=1e-6)


def test_a_script_of_its_own_is_read_without_being_told_what_it_is(recipe):
    entry, reading, drafted = recipe
    target = framework(entry["framework"])
    found = conversion(reading, drafted, target, reading.config.version)
    main = next(iter(found.files))
    if entry["framework"] == "mindspeed":
        return  # without one of its own features its scripts are Megatron-LM's
    assert read_text(found.files[main], file=main).config.framework.name == entry["framework"]
