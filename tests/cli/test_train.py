"""`meshwright train` as far as it goes without torch: help, dry runs, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.cli.main import run
from meshwright.train.launch import event
from meshwright.train.launch.event import Event

TRACEBACK = "Traceback (most recent call last):"
PLAN = """
[model]
model_type = "llama"
vocab_size = 256
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[cluster]
gpu = "H100:2"
nodes = 1
[workload]
seq_len = 32
global_batch = 8
[plan]
dp = 2
"""


@pytest.fixture
def plan(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(PLAN)
    return "plan.toml"


def test_help_has_examples_and_imports_no_torch():
    code = (
        "import sys; from meshwright.cli.main import run; code = run(['train', '--help']);"
        "print('torch' in sys.modules, 'numpy' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.split() == ["False", "False"]
    assert "meshwright train plan.toml --data shards/ --steps 1000 --out runs/a" in ran.stdout
    assert "--checkpoint-every" in ran.stdout


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(plan, capsys):
    asked = ["train", plan, "--steps", "50", "--out", "run", "--device", "cpu", "--dry-run"]
    assert run(asked) == 0
    out = capsys.readouterr().out
    assert "would train 50 steps, 12.8k tokens of synthetic, on 2 cpu ranks, into run" in out
    assert not Path("run").exists()
    assert run([*asked, "--json", "--lr", "0.01", "--profile", "3:4"]) == 0
    out, err = capsys.readouterr()
    settings = json.loads(out)["run"]
    assert settings["recipe"]["learning_rate"] == 0.01
    assert settings["telling"]["profile"] == [3, 4]
    assert err == ""


def test_a_plan_that_cannot_run_is_refused_with_findings(plan, capsys):
    Path(plan).write_text(PLAN.replace("global_batch = 8", "global_batch = 7"))
    asked = ["train", plan, "--steps", "5", "--out", "run", "--device", "cpu"]
    assert run(asked) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "does not divide into micro-batches of 1 on 2 replicas" in err
    assert "workload.global_batch = 6 or 8" in err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--steps", "5"], "Missing option '--out'"),
        (["--steps", "5", "--out", "run", "--profile", "x"], "is no window of steps, as 10:12"),
        (["--steps", "0", "--out", "run"], "steps = 0 is not between 1"),
        (["--steps", "5", "--out", "run", "--lr-schedule", "step"], "is none of cosine, wsd"),
        (["--steps", "5", "--out", "run", "--data", "gone"], "there is no such file or folder"),
        (["--out", "run"], "neither the plan nor the command says how long to train"),
    ],
)
def test_wrong_usage_is_told(plan, capsys, asked, words):
    assert run(["train", plan, "--device", "cpu", *asked]) == 2
    assert words in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_folder_in_use_is_told_with_what_to_type(plan, capsys, monkeypatch):
    monkeypatch.setattr("meshwright.api.training.need_libraries", lambda: None)
    Path("run").mkdir()
    Path("run/run.json").write_text("{}")
    assert run(["train", plan, "--device", "cpu", "--steps", "5", "--out", "run"]) == 2
    err = capsys.readouterr().err
    assert "'run' holds a run already" in err
    assert "add --resume" in err


# What happens to a run


def shown(capsys, *events) -> str:
    from meshwright.cli.train import _Screen

    screen = _Screen()
    for told in events:
        screen.show(told)
    return capsys.readouterr().err


def test_a_traceback_of_rank_0_that_another_rank_caused_is_not_shown(capsys):
    err = shown(
        capsys,
        Event(kind=event.LINE, rank=0, text="step 1/9  loss 2\n"),
        Event(kind=event.LINE, rank=0, text=f"warned\n{TRACEBACK}\n  File ...\n"),
        Event(kind=event.LINE, rank=0, text="RuntimeError: Connection closed by peer\n"),
        Event(kind=event.FAILED, rank=1, code=-9, text="rank 1 ended with signal SIGKILL"),
        Event(kind=event.RESTARTING, text="attempt 2; 1 more may follow"),
        Event(kind=event.RANKS),
        Event(kind=event.LINE, rank=0, text="step 1/9  loss 2\n"),
    )
    assert err.splitlines() == [
        "step 1/9  loss 2",
        "warned",
        "failed: rank 1 ended with signal SIGKILL",
        "restarting: attempt 2; 1 more may follow",
        "step 1/9  loss 2",
    ]


def test_what_the_rank_to_blame_wrote_last_is_shown_once(capsys):
    told = Event(kind=event.LINE, rank=0, text=f"{TRACEBACK}\n  File ...\nKeyError: 1\n")
    failed = Event(kind=event.FAILED, rank=0, code=1, text="rank 0 ended", lines=("KeyError: 1",))
    assert shown(capsys, told, failed).splitlines() == ["failed: rank 0 ended", "  KeyError: 1"]
    told = Event(kind=event.LINE, rank=0, text="error: no such weights\n")
    failed = Event(kind=event.FAILED, rank=0, code=2, text="rank 0 ended", lines=("error: no",))
    assert shown(capsys, told, failed).splitlines() == [
        "error: no such weights",
        "failed: rank 0 ended",
    ]


def test_an_event_in_the_middle_of_a_line_begins_a_new_one(capsys):
    err = shown(
        capsys,
        Event(kind=event.LINE, rank=0, text="\rstep 1/9"),
        Event(kind=event.STOPPING, text="the ranks have 60 s"),
    )
    assert err == "\rstep 1/9\nstopping: the ranks have 60 s\n"


def test_warnings_that_check_does_not_have_are_shown_in_full(plan, capsys):
    layers = "num_hidden_layers = 2"
    latent = """
moe_intermediate_size = 32
n_routed_experts = 8
num_experts_per_tok = 2
n_shared_experts = 1
first_k_dense_replace = 1
kv_lora_rank = 16
qk_rope_head_dim = 8
qk_nope_head_dim = 8
v_head_dim = 8
num_nextn_predict_layers = 1
"""
    changed = PLAN.replace('"llama"', '"deepseek_v3"').replace(layers, layers + latent)
    Path(plan).write_text(changed.replace("num_key_value_heads = 2", "num_key_value_heads = 4"))
    asked = ["train", plan, "--steps", "5", "--out", "run", "--device", "cpu", "--dry-run"]
    assert run(asked) == 0
    err = capsys.readouterr().err
    assert "1 layer of multi-token prediction will not be trained" in err
    assert "meshwright check plan.toml shows" in err
