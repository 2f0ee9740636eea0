"""Exact keys: equal for equal text, and the hash that they are said to be."""

import numpy as np
import xxhash

from meshwright.data.dedup.exact import exact_keys
from meshwright.data.documents import documents_of


def test_the_key_is_xxh3_of_the_text():
    texts = ["", "one", "two words", "é" * 300]
    keys = exact_keys(documents_of(texts))
    assert keys.shape == (4, 2)
    assert keys.dtype == np.uint64
    whole = [int(high) << 64 | int(low) for high, low in keys]
    assert whole == [xxhash.xxh3_128_intdigest(text.encode()) for text in texts]


def test_equality_is_of_bytes_and_of_nothing_else():
    first, again, upper, spaced = exact_keys(
        documents_of(["a b", "a b", "A b", "a  b"], ids=["x", "y", "z", "w"])
    ).tolist()
    assert first == again
    assert first != upper
    assert first != spaced


def test_no_documents():
    assert exact_keys(documents_of([])).shape == (0, 2)
