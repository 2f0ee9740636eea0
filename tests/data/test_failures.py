"""What the system has against a build, told as what happened."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from meshwright.data.failures import broken_off


def missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))


@pytest.mark.parametrize("inside", ["", ".work/scan/00000/survivors.npy", "manifest.json"])
def test_an_output_folder_that_is_gone(tmp_path: Path, inside: str) -> None:
    found = broken_off(missing(tmp_path / "out" / inside), tmp_path / "out")
    assert "vanished" in found.message
    assert "what removes it" in found.hint


def test_an_output_folder_whose_work_is_gone(tmp_path: Path) -> None:
    found = broken_off(missing(tmp_path / ".work" / "scan"), tmp_path)
    assert "vanished" in found.message


def test_an_input_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    found = broken_off(missing(tmp_path / "a.jsonl"), tmp_path / "out")
    assert "a.jsonl' is gone" in found.message
