"""The hooks that pre-commit runs are commands that exist, on files that are read."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from meshwright.cli.main import run

ROOT = Path(__file__).parents[2]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_a_hook_runs(hook, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("package.json").write_text('{"name": "x"}\n')
    command = shlex.split(hook["entry"])
    assert command[0] == "meshwright"
    assert run([*command[1:], "package.json"]) == 0
    assert capsys.readouterr() == ("", "")
    assert Path("package.json").read_text() == '{"name": "x"}\n'


def test_hooks_have_what_pre_commit_needs():
    assert [hook["id"] for hook in HOOKS] == ["meshwright-check", "meshwright-fix"]
    for hook in HOOKS:
        assert hook["language"] == "python"
        assert {"name", "description", "entry", "types_or"} <= set(hook)
