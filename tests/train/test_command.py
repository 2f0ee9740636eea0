"""The command itself, with processes: it trains, stops for Ctrl-C, goes on, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from meshwright.train.telling.metrics import METRICS, read_metrics

PLAN = """
[model]
model_type = "llama"
vocab_size = 64
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
[cluster]
gpu = "H100:2"
nodes = 1
[workload]
seq_len = 16
global_batch = 4
[plan]
dp = 2
zero_stage = 3
precision = "fp32"
"""
PATIENCE_S = 240


def command(folder: Path, *options: str) -> list[str]:
    (folder / "plan.toml").write_text(PLAN)
    start = [sys.executable, "-m", "meshwright", "train", str(folder / "plan.toml")]
    return [*start, "--out", str(folder / "run"), "--device", "cpu", *options]


def ranks_of(folder: Path) -> list[int]:
    """Processes whose rank's beats lie in the folder and that still run."""
    beats = (folder / "run" / "logs" / "beats").glob("rank-*")
    found = [json.loads(path.read_bytes())["pid"] for path in beats]
    return [pid for pid in found if Path(f"/proc/{pid}").exists()]


def test_it_stops_for_ctrl_c_goes_on_and_leaves_no_process(tmp_path):
    began = subprocess.Popen(
        command(tmp_path, "--steps", "100000"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    path = tmp_path / "run" / METRICS
    end_s = time.monotonic() + PATIENCE_S
    while len(read_metrics(path)) < 3 and time.monotonic() < end_s:
        time.sleep(0.1)
    os.kill(began.pid, signal.SIGINT)
    out, err = began.communicate(timeout=PATIENCE_S)
    assert began.returncode == 130, err
    assert "stopped, to be gone on with" in out
    assert ranks_of(tmp_path) == []
    done = read_metrics(path)[-1]["step"]
    assert (tmp_path / "run" / f"step-{done}").is_dir()

    options = ["--steps", str(done + 2), "--resume", "--json", "--checkpoint-every", "-1"]
    ended = subprocess.run(
        command(tmp_path, *options), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["summary"]["resumed_from"] == done
    assert told["summary"]["steps_here"] == 2
    assert [r["step"] for r in read_metrics(path)] == list(range(1, done + 3))
    assert f"resumed from {tmp_path}/run/step-{done}" in ended.stderr
    assert ranks_of(tmp_path) == []


def test_what_a_rank_refuses_is_one_clear_line(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "model.safetensors").write_bytes(b"torn")
    ended = subprocess.run(
        command(tmp_path, "--steps", "2", "--weights", str(tmp_path / "hf")),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "error: " in ended.stderr
