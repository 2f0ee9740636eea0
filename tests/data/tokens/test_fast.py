"""gigatoken's cache is dropped without a change of ids; guards see what they guard against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens import fast
from meshwright.data.tokens.tokenizer import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_new_cache_gives_the_same_ids(
    byte_level: dict[str, Any], written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    tokenizer = load(TokenizerSource(file=str(written(byte_level))))
    make = tokenizer.encoder._make  # type: ignore[attr-defined]
    counted = fast.Gigatoken(lambda: made.append(1) or make())
    monkeypatch.setattr(fast, "LOOKED_BYTES", 1000)
    monkeypatch.setattr(fast, "GROWTH_BYTES", -1)
    texts = [f"word{n} and other{n * 7} " * 20 for n in range(40)]
    ids = np.concatenate([counted.encode(text.encode()) for text in texts])
    assert len(made) > 5
    assert np.array_equal(ids, tokenizer.encode(documents_of(texts))[0])


def test_where_memory_cannot_be_seen_text_is_counted(
    byte_level: dict[str, Any], written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = load(TokenizerSource(file=str(written(byte_level))))
    make, made = tokenizer.encoder._make, []  # type: ignore[attr-defined]
    monkeypatch.setattr(fast, "_resident_bytes", lambda: 0)
    monkeypatch.setattr(fast, "LOOKED_BYTES", 100)
    monkeypatch.setattr(fast, "UNSEEN_BYTES", 1000)
    counted = fast.Gigatoken(lambda: made.append(1) or make())
    for _ in range(30):
        counted.encode(b"x" * 101)
    assert len(made) == 4  # 1010 bytes each


@given(
    ids=st.lists(st.integers(0, 2**32 - 1), max_size=20),
    tokens=st.sets(st.integers(0, 2**20) | st.integers(0, 2**31), min_size=1, max_size=5),
)
def test_holding_is_membership(ids: list[int], tokens: set[int]) -> None:
    near = fast.holding(tokens)
    assert near(b"", np.array(ids, dtype=np.uint32)) == bool(tokens & set(ids))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\n ", True),
        ("a \r\n\t\u3000", True),
        ("a\n", False),
        ("a ", False),
        ("a\n b", False),
        ("", False),
        ("\u2028 ", False),
        ("\n" * 9 + " ", True),
    ],
)
def test_blanks_behind_a_line_end(text: str, found: bool) -> None:
    assert fast.ends_in_blanks(text.encode(), np.zeros(0, dtype=np.uint32)) is found
