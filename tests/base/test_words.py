"""Values as words."""

from __future__ import annotations

import pytest

from meshwright.base.words import ranks_in_words


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((3,), "rank 3"),
        ((8, 0, 1, 2, 3), "ranks 0-3, 8"),
        ((), ""),
        (range(0, 40, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"),
    ],
)
def test_ranks_in_words(numbers, words):
    assert ranks_in_words(numbers) == words
