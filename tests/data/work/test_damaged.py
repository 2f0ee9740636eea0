"""A column of finished work that was cut short or overwritten is told, with what to remove."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.data.work.store import Store


@pytest.mark.parametrize("content", [-5, 40, 0, b"nonsense" * 50], ids=repr)
def test_a_damaged_column(tmp_path: Path, content: int | bytes) -> None:
    store = Store(tmp_path)
    with store.writing("scan", 0, key="k") as draft:
        draft.write_column("numbers", np.arange(100))
    path = store.folder("scan", 0) / "numbers.npy"
    path.write_bytes(content if isinstance(content, bytes) else path.read_bytes()[:content])
    with pytest.raises(MeshwrightError, match="damaged") as caught:
        store.column("scan", 0, "numbers")
    assert str(path.parent) in caught.value.hint


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "added"])
def test_a_unit_whose_files_changed_is_not_whole(tmp_path: Path, how: str) -> None:
    store = Store(tmp_path)
    with store.writing("scan", 0, key="k") as draft:
        draft.write_column("numbers", np.arange(100))
        (draft.folder / "deep").mkdir()
        draft.write_text("deep/text.zst", "text")
    assert store.is_whole("scan", 0)
    path = store.folder("scan", 0) / "deep" / "text.zst"
    content = {"flipped": "tezt", "cut": "tex", "added": "text"}
    path.unlink()
    if how != "gone":
        path.write_text(content[how])
    if how == "added":
        path.with_name("more").write_text("")
    assert not store.is_whole("scan", 0)
    assert not store.is_whole("scan", 1)
