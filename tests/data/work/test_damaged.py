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
