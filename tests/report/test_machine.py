"""JSON output: versioned, finite, NumPy understood."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.report.machine import FORMAT_VERSION, to_json


def test_numpy_values_and_infinities():
    text = to_json(
        {"a": np.float64(1.5), "b": np.arange(2), "c": float("inf"), "d": (1, float("nan"))}
    )
    assert json.loads(text) == {
        "version": FORMAT_VERSION,
        "a": 1.5,
        "b": [0, 1],
        "c": None,
        "d": [1, None],
    }


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.floats() | st.integers(-(2**60), 2**60),
    )
)
def test_any_figures_make_valid_json(record):
    assert set(json.loads(to_json(record))) == {"version", *record}
