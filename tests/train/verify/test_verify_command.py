"""`meshwright verify` as it is typed: forked ranks, the page, JSON, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytest.importorskip("transformers")

PLAN = """
[model]
name = "llama-3.1-8b"
[cluster]
gpu = "H100:8"
nodes = 1
[workload]
seq_len = 4096
global_batch = 64
[plan]
tp = 2
dp = 4
zero_stage = 3
"""


def verified(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.toml").write_text(PLAN)
    command = [sys.executable, "-m", "meshwright", "verify", str(folder / "plan.toml"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_plan_is_exact_and_nothing_else_is_said(tmp_path: Path) -> None:
    ended = verified(tmp_path, "--ranks", "4", "--steps", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["exact"] is True
    assert told["plans"]
    assert all(plan["gradient"] < 1e-9 for plan in told["plans"])
    assert "original_max_position_embeddings" not in ended.stderr
    assert "Warning" not in ended.stderr


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "meshwright", "verify", str(tmp_path / "none.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "none.toml" in ended.stderr
    assert "Traceback" not in ended.stderr
