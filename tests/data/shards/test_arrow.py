"""Arrays made from buffers are those that pyarrow makes, and pandas is left alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.shards.arrow import numbers, strings


@given(st.lists(st.text(max_size=9), max_size=20))
def test_strings(values: list[str]) -> None:
    found = strings(values)
    found.validate(full=True)
    assert found.equals(pyarrow.array(values, type=pyarrow.string()))


@given(
    st.lists(st.tuples(st.integers(-9, 100), st.booleans()), max_size=40),
    st.sampled_from([np.int16, np.int32, np.int64, np.float32]),
)
def test_numbers(rows: list[tuple[int, bool]], dtype: type) -> None:
    values = np.array([value for value, _ in rows], dtype=dtype)
    missing = np.array([gone for _, gone in rows], dtype=np.bool_)
    for mask in (None, missing):
        found = numbers(values, missing=mask)
        found.validate(full=True)
        assert found.equals(pyarrow.array(values, mask=mask))


def test_a_field_of_rows() -> None:
    rows = np.array([(1, 2), (3, 4)], dtype=[("a", "<i4"), ("b", "<i8")])
    assert numbers(rows["b"]).to_pylist() == [2, 4]


def test_pandas_is_not_imported() -> None:
    code = (
        "import sys, numpy as np\n"
        "from meshwright.data.shards.arrow import numbers, strings\n"
        "strings(['a']).take(numbers(np.array([0, -1]), missing=np.array([False, True])))\n"
        "print('pandas' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout.strip() == b"False"
