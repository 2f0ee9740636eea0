"""Marks before a place, against sums."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.words.ranks import Ranks


@given(st.lists(st.booleans(), max_size=300))
def test_marks_before_every_place_and_the_end(marks: list[bool]) -> None:
    places = np.arange(len(marks) + 1)
    before = [sum(marks[:place]) for place in places]
    assert Ranks(np.array(marks, dtype=np.bool_)).before(places).tolist() == before
