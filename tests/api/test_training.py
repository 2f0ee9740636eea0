"""What `meshwright.train` says before it starts anything; none of it needs torch."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright as mw
from meshwright.api.training import Nodes, begin, launch, train
from meshwright.api.training.options import OPTIONS, run_of
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Severity
from meshwright.plan.file import parse_job
from meshwright.train.launch.devices import visible_gpus
from meshwright.train.settings import Feed, Guard, Recipe, Run, Saving, Telling, read_spec

MODEL = """
[model]
model_type = "llama"
vocab_size = 256
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[cluster]
gpu = "H100:8"
nodes = 1
[workload]
seq_len = 32
global_batch = 8
"""
PLAN = MODEL + "[plan]\ndp = 8\nzero_stage = 3\n"


@pytest.fixture
def plan_file(tmp_path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def begun(plan, tmp_path, **given):
    nodes = given.pop("nodes", Nodes())
    asked = {"data": "synthetic", "steps": 5, "resume": False, "device": "cpu"} | given
    return begin(plan, out=tmp_path / "run", nodes=nodes, **asked)


def errors(start) -> list[str]:
    return [f.message for f in start.findings if f.severity is Severity.ERROR]


# Options


def test_every_setting_has_an_option_and_every_option_a_setting():
    parts = {"recipe": Recipe, "feed": Feed, "saving": Saving, "telling": Telling, "guard": Guard}
    wanted = {("", f.name) for f in fields(Run) if f.name not in parts}
    wanted |= {(name, f.name) for name, part in parts.items() for f in fields(part)}
    placed = [(option.part, option.field) for option in OPTIONS.values()]
    assert sorted(placed) == sorted(wanted)


def test_options_become_settings(plan_file):
    given = {"out": "o", "steps": 9, "learning_rate": 1, "checkpoint_every": 4, "profile": (2, 3)}
    run = run_of(mw.read_job(plan_file), given)
    assert run.recipe == Recipe(learning_rate=1.0)
    assert isinstance(run.recipe.learning_rate, float)
    assert run.saving.every_steps == 4
    assert run.telling.profile == (2, 3)
    assert run.feed == Feed()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 0}, "steps = 0 is not between 1"),
        ({"learning_rate": 0}, "learning_rate = 0 is not above 0"),
        ({"learning_rate": float("nan")}, "is not between"),
        ({"learning_rate": float("inf")}, "is not between"),
        ({"learning_rate": "fast"}, "learning_rate = 'fast' is not a number"),
        ({"seed": True}, "seed = true is not a whole number"),
        ({"lr_schedule": "cos"}, "is none of cosine, wsd, linear, constant"),
        ({"lr_schedule": "wsd"}, "wsd falls over the last decay_steps"),
        ({"warmup_steps": 90, "steps": 10}, "more than the run's 10"),
        ({"profile": (5, 2)}, "is no window"),
        ({"profile": "1:2"}, "is no first and last step"),
        ({"profile": (50, 60), "steps": 10}, "beyond the run's 10"),
        ({"learning_rte": 1e-3}, "'learning_rte' is no option of train"),
        ({"nonfinite": "panic"}, "is none of skip, stop"),
    ],
)
def test_what_cannot_be_is_told_with_what_can(plan_file, given, message):
    asked = {"out": "o", "steps": 100} | given
    with pytest.raises(InvalidInput) as error:
        run_of(mw.read_job(plan_file), asked)
    assert message in str(error.value)
    assert all(finding.hint for finding in error.value.findings)


@given(
    name=st.sampled_from(sorted(OPTIONS)),
    value=st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.tuples(st.integers())),
)
def test_a_value_of_any_kind_is_taken_or_told(name, value):
    try:
        run = run_of(parse_job(PLAN), {"out": "o", "steps": 10} | {name: value})
    except InvalidInput:
        return
    option = OPTIONS[name]
    part = getattr(run, option.part) if option.part else run
    assert getattr(part, option.field) == option.kind(value)


def test_without_steps_the_plan_says_how_long():
    job = parse_job(PLAN)
    with pytest.raises(MeshwrightError, match="how long to train") as error:
        run_of(job, {"out": "o"})
    assert "--steps" in error.value.hint
    long = replace(job, workload=replace(job.workload, train_tokens=1000.0))
    assert run_of(long, {"out": "o"}).steps == 4  # of 256 tokens


# What is found before a start


def test_a_sound_plan_begins(plan_file, tmp_path):
    start = begun(plan_file, tmp_path)
    assert errors(start) == []
    assert start.ranks_per_node == 8
    assert start.spec.config["hidden_size"] == 64
    assert start.spec.expected.flops_per_token > 0
    assert start.spec.expected.step_s is None  # the plan is for GPUs, the run on a CPU
    assert parse_job(start.spec.plan_toml) == start.job
    assert not (tmp_path / "run").exists()


def test_on_the_machine_of_the_plan_the_prediction_stands_beside(plan_file, tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.api.training.visible_gpus", lambda: 8)
    start = begun(plan_file, tmp_path, device=None)
    expected = start.spec.expected
    assert start.run.device == "cuda"
    assert expected.step_s == mw.predict(plan_file).step_time_s
    assert expected.peak_flops == start.job.cluster.gpu.peak_flops["bf16"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("global_batch = 8", "global_batch = 12", "does not divide into micro-batches"),
        ("dp = 8", "dp = 4\ncp = 2\nprecision = 'mxfp8'", "products in mxfp8"),
        ("zero_stage = 3", "zero_stage = 1\noffload_optimizer = 1.0", "go to the host together"),
    ],
)
def test_what_the_engine_cannot_do_is_told(tmp_path, old, new, message):
    start = begun(parse_job(PLAN.replace(old, new)), tmp_path)
    assert any(message in text for text in errors(start))


def test_nodes_and_gpus_must_do_for_the_plan(plan_file, tmp_path, monkeypatch):
    assert "8 ranks do not divide over 3 nodes" in errors(
        begun(plan_file, tmp_path, nodes=Nodes(count=3, endpoint="a:1"))
    )
    monkeypatch.setattr("meshwright.api.training.visible_gpus", lambda: 4)
    start = begun(plan_file, tmp_path, device="cuda")
    found = [f for f in start.findings if f.key == "nnodes"]
    assert found[0].message == "the plan needs 8 GPUs on this node, which has 4"
    assert found[0].hint.startswith("--nnodes 2 ")
    assert begun(plan_file, tmp_path, device="cuda", nodes=Nodes(count=2)).ranks_per_node == 4


def test_rules_can_be_ignored_by_code(tmp_path):
    bad = parse_job(PLAN.replace("dp = 8", "dp = 2\ntp = 4"))  # 2 key/value heads over tp 4
    codes = {f.code for f in begun(bad, tmp_path).findings if f.code}
    assert codes
    kept = begun(bad, tmp_path, ignore=tuple(codes)).findings
    assert not {f.code for f in kept} & codes


def test_train_raises_with_every_error(tmp_path):
    bad = parse_job(PLAN.replace("global_batch = 8", "global_batch = 12"))
    with pytest.raises(InvalidInput, match="does not divide"):
        train(bad, out=tmp_path / "run", steps=1, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_left_alone(plan_file, tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.api.training.need_libraries", lambda: None)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    with pytest.raises(MeshwrightError, match="holds a run already") as error:
        launch(begun(plan_file, tmp_path))
    assert "--resume" in error.value.hint


def test_a_run_at_work_keeps_its_files_when_another_is_refused(plan_file, tmp_path, monkeypatch):
    from meshwright.train.launch import lock

    monkeypatch.setattr("meshwright.api.training.need_libraries", lambda: None)
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)
    out = tmp_path / "run"
    names = ("run.json", "plan.toml", "config.json", "summary.json")
    with lock.held(out / "logs" / "lock-0"):
        for name in names:
            (out / name).write_text("{}")
        with pytest.raises(MeshwrightError, match="another run is at work"):
            launch(begun(plan_file, tmp_path, resume=True))
    assert {(out / name).read_text() for name in names} == {"{}"}


def test_a_folder_that_cannot_be_written_is_told(plan_file, tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.api.training.need_libraries", lambda: None)
    (tmp_path / "file").write_text("x")
    start = begun(plan_file, tmp_path)
    start = replace(start, run=replace(start.run, out=str(tmp_path / "file" / "run")))
    with pytest.raises(MeshwrightError, match="cannot write into") as error:
        launch(start)
    assert error.value.hint == "name another folder with --out"


def test_without_torch_it_says_what_to_install(plan_file, tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.data.needs.find_spec", lambda name: None)
    with pytest.raises(MeshwrightError, match="training needs torch") as error:
        launch(begun(plan_file, tmp_path))
    assert error.value.hint == "pip install 'meshwright[train]'"


def test_what_is_launched_reads_back(plan_file, tmp_path, monkeypatch):
    called = {}

    def supervise(worker, **given):
        called.update(given, worker=worker)
        given["log_folder"].mkdir(parents=True)
        given["before"]()
        return 0

    monkeypatch.setattr("meshwright.api.training.need_libraries", lambda: None)
    monkeypatch.setattr("meshwright.train.launch.local.supervise", supervise)
    start = begun(plan_file, tmp_path, hang_s=77.0, grace_s=5.0)
    ended = launch(start, max_restarts=2)
    assert ended.done
    assert ended.summary is None
    module, path = called["worker"]
    assert module == "meshwright.train.worker"
    assert read_spec(Path(path)) == start.spec
    assert (called["ranks_per_node"], called["max_restarts"], called["grace_s"]) == (8, 2, 5.0)
    assert called["start"] == "fork"
    assert called["limits"].step_s == 77
    assert (tmp_path / "run" / "plan.toml").read_text() == start.spec.plan_toml


# Data


def test_data_that_is_not_there_is_told(plan_file, tmp_path):
    with pytest.raises(InvalidInput, match="there is no such file or folder"):
        begun(plan_file, tmp_path, data="nowhere/")


def test_text_needs_a_tokenizer(plan_file, tmp_path):
    (tmp_path / "book.txt").write_text("Once upon a time.")
    start = begun(plan_file, tmp_path, data=str(tmp_path / "book.txt"))
    assert any("nothing says how it becomes tokens" in text for text in errors(start))


def test_a_larger_vocabulary_than_the_models_is_refused(plan_file, tmp_path):
    import numpy as np

    from meshwright.data.shards.indexed import writing

    with writing(tmp_path / "corpus", np.dtype("<u2")) as (writer, _):
        writer.append(np.array([3, 999], dtype="<u2"), np.array([2]))
    start = begun(plan_file, tmp_path, data=str(tmp_path / "corpus"))
    assert any("holds token 999; the model knows 256" in text for text in errors(start))


def test_evaluation_needs_something_that_is_held_out(plan_file, tmp_path):
    import numpy as np

    from meshwright.data.shards.indexed import writing

    with writing(tmp_path / "corpus", np.dtype("<u2")) as (writer, _):
        writer.append(np.arange(200, dtype="<u2"), np.array([200]))
    given = {"data": str(tmp_path / "corpus"), "evaluate_every": 2}
    assert any("holds nothing out" in text for text in errors(begun(plan_file, tmp_path, **given)))
    given["evaluation"] = "synthetic"
    assert errors(begun(plan_file, tmp_path, **given)) == []


# Machine and package


def test_gpus_are_those_that_are_visible(tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    count = {
        None: 3,
        "0": 1,
        "0,2": 2,
        "": 0,
        "-1": 0,
        "1,-1,2": 1,
        "GPU-a,GPU-b": 2,
        "0,1,2,3,4": 3,
    }
    for text, wanted in count.items():
        environment = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
        assert visible_gpus(environment, devices=tmp_path) == wanted


def test_the_package_is_the_verb_and_needs_no_torch():
    code = (
        "import sys, inspect, meshwright as mw, json;"
        "names = list(inspect.signature(mw.train).parameters);"
        "print(json.dumps([names, 'torch' in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, has_torch = json.loads(ran.stdout)
    assert names[:2] == ["job", "out"]
    assert not has_torch


def test_what_the_weights_say_otherwise_is_told_before_a_start(plan_file, tmp_path):
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"")
    keys = tomllib.loads(MODEL)["model"] | {"hidden_size": 32}
    (folder / "config.json").write_text(json.dumps(keys))
    found = errors(begun(plan_file, tmp_path, weights=str(folder)))
    assert any("hidden_size is 32" in message for message in found)
    with pytest.raises(InvalidInput, match="is no folder"):
        begun(plan_file, tmp_path, weights=str(tmp_path / "none"))


def _written_alone(_worker, **given):
    given["log_folder"].mkdir(parents=True, exist_ok=True)
    given["before"]()
    return 0


def test_a_run_keeps_the_configuration_that_it_began_with(plan_file, tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.api.training.need_libraries", lambda: None)
    monkeypatch.setattr("meshwright.train.launch.local.supervise", _written_alone)
    start = begun(plan_file, tmp_path)
    launch(start)
    kept = json.loads((tmp_path / "run" / "config.json").read_bytes())
    assert kept == start.spec.config
    (tmp_path / "run" / "config.json").write_text(json.dumps(kept | {"rope_theta": 777.0}))
    (tmp_path / "run" / "step-5").mkdir()
    assert begun(plan_file, tmp_path, resume=True).spec.config["rope_theta"] == 777.0
    assert "rope_theta" not in begun(plan_file, tmp_path).spec.config


def test_what_only_training_knows_is_told_apart(tmp_path):
    text = PLAN.replace(MODEL.split("[cluster]")[0], '[model]\nname = "deepseek-v3"\n')
    start = begun(parse_job(text), tmp_path)
    told = [f.message for f in start.told if f.severity is Severity.WARNING]
    assert any("multi-token prediction" in message for message in told)
    assert {f.message for f in start.told} < {f.message for f in start.findings}
