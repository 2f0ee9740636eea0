"""The loop that the guide shows is one that runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("torch._dynamo")

from meshwright.train.local import run_ranks  # noqa: E402

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "train.md"


def block(after: str, language: str) -> str:
    text = GUIDE.read_text(encoding="utf-8")
    found = re.search(rf"```{language}\n(.*?)```", text[text.index(after) :], re.DOTALL)
    assert found is not None
    return found[1]


def losses(folder: str, code: str) -> list[float]:
    os.chdir(folder)
    told = []
    torch.distributed.init_process_group = lambda *_: None  # the rank has its group already
    exec(code, {"print": lambda step, loss: told.append(loss)})
    return told


def test_the_loop_of_the_guide_trains(tmp_path):
    (tmp_path / "plan.toml").write_text(block("<!-- file: plan.toml -->", "toml"))
    code = block("## A loop of your own", "python")
    first, second = run_ranks(losses, 2, str(tmp_path), code, timeout_s=120)
    assert len(first) == 5
    assert first[-1] < first[0] - 0.2
    assert second == []
