"""`meshwright launch`: files on stdout, findings on stderr, and what it refuses."""

from __future__ import annotations

import json

import pytest

from meshwright.cli.main import run
from meshwright.train.launch.schedulers import SCHEDULERS

PLAN = """
[model]
name = "llama-3-8b"
[cluster]
gpu = "H100:8"
nodes = 2
[workload]
seq_len = 8192
global_batch = 64
[plan]
tp = 2
zero_stage = 1
"""


@pytest.fixture(autouse=True)
def plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)


def launch(*arguments):
    return run(["launch", "plan.toml", "--out", "runs/a", *arguments])


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_file_goes_to_stdout_alone(scheduler, capsys):
    code = launch("--on", scheduler, "--steps", "10", "--image", "a/b", "--", "--seed", "1")
    out = capsys.readouterr().out
    assert code == 0
    for word in ("plan.toml", "runs/a", "--steps", "--seed"):
        assert word in out


def test_json_has_file_command_and_place(capsys):
    assert launch("--on", "slurm", "--json", "--data", "a b") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["nodes"], told["ranks_per_node"]) == (2, 8)
    assert told["command"].endswith("--data 'a b'")
    assert told["file"].startswith("#!/bin/bash\n")
    assert told["findings"] is not None


def test_a_plan_that_breaks_a_rule_is_written_and_told(tmp_path, capsys):
    (tmp_path / "plan.toml").write_text(PLAN.replace("tp = 2", "tp = 3\ndp = 5"))
    assert launch("--on", "torchrun") == 1
    told = capsys.readouterr()
    assert told.out.startswith("#!/bin/bash\n")
    assert "error[" in told.err


def test_variables_are_added_to_those_of_the_plan(capsys):
    assert launch("--on", "slurm", "--env", "NCCL_DEBUG=INFO", "--env", "A=b c") == 0
    out = capsys.readouterr().out
    assert "export NCCL_DEBUG=INFO\n" in out
    assert "export A='b c'\n" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "slurm", "--partition", "a b"], "no name that a scheduler takes"),
        (["--on", "kubernetes"], "--image"),
        (["--on", "kubernetes", "--image", "a", "--name", "A"], "none that Kubernetes takes"),
        (["--on", "slurm", "--env", "A B=1"], "no name of an environment variable"),
        (["--on", "slurm", "--env", "A"], "VARIABLE=VALUE"),
        (["--on", "pbs"], "slurm"),
        (["--on", "slurm", "--", "--bogus", "1"], "--bogus"),
        (["--on", "slurm", "--", "--profile", "ten"], "no window of steps"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_type(arguments, said, capsys):
    assert launch(*arguments) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert not told.out


def test_a_plan_that_is_not_there_is_told(capsys):
    assert run(["launch", "none.toml", "--on", "slurm", "--out", "a"]) == 2
    assert "none.toml" in capsys.readouterr().err
