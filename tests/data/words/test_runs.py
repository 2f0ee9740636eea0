"""Repeated runs of words against a definition that looks at every run."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.words.runs import repeated_runs, top_runs
from meshwright.data.words.table import Table

DOCUMENTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=40), max_size=6)
REPETITIVE = st.lists(
    st.lists(
        st.sampled_from(["a b c d e f g", "x y z", "a", "q q q q q q q q q q q q", "b"]), max_size=9
    )
    .map(" ".join)
    .map(str.split),
    min_size=1,
    max_size=5,
)


def covered(words: list[str], weights: list[int], n: int) -> int:
    seen, inside = set(), set()
    for place in range(len(words) - n + 1):
        run = tuple(words[place : place + n])
        if run in seen:
            inside.update(range(place, place + n))
        seen.add(run)
    return sum(weights[place] for place in inside)


def commonest(words: list[str], weights: list[int], n: int) -> int:
    runs = [tuple(words[place : place + n]) for place in range(len(words) - n + 1)]
    if not runs:
        return 0
    run, count = Counter(runs).most_common(1)[0]  # the first among equals
    at = [place for place, found in enumerate(runs) if found == run]
    return sum(sum(weights[place : place + n]) for place in at) if count > 1 else 0


def drawn(documents: list[list[str]]) -> tuple[Table, list[list[int]]]:
    weights = [[1 + (7 * i + ord(word)) % 5 for i, word in enumerate(words)] for words in documents]
    return Table.of(documents_of([" ".join(words) for words in documents])), weights


@given(st.one_of(DOCUMENTS, REPETITIVE))
@settings(max_examples=300)
def test_all_repeated_runs(documents: list[list[str]]) -> None:
    table, weights = drawn(documents)
    flat = np.array([weight for row in weights for weight in row], dtype=np.int64)
    nothing = np.full(len(documents), -1.0)
    found = repeated_runs(table, flat, above=dict.fromkeys(range(2, 9), nothing))
    for n in range(2, 9):
        expected = [covered(a, b, n) for a, b in zip(documents, weights, strict=True)]
        assert found[n].tolist() == expected, n


@given(st.one_of(DOCUMENTS, REPETITIVE), st.lists(st.integers(0, 60), min_size=6, max_size=6))
def test_whatever_is_above_a_limit_is_exact(documents: list[list[str]], limits: list[int]) -> None:
    table, weights = drawn(documents)
    flat = np.array([weight for row in weights for weight in row], dtype=np.int64)
    above = {n: np.full(len(documents), float(limits[n - 2])) for n in range(2, 8)}
    found = repeated_runs(table, flat, above=above)
    for n, limit in above.items():
        for index, (words, row) in enumerate(zip(documents, weights, strict=True)):
            exact = covered(words, row, n)
            assert found[n][index] == exact or max(exact, found[n][index]) <= limit[index]


@given(st.one_of(DOCUMENTS, REPETITIVE), st.integers(-1, 60))
def test_top_runs(documents: list[list[str]], limit: int) -> None:
    table, weights = drawn(documents)
    flat = np.array([weight for row in weights for weight in row], dtype=np.int64)
    above = dict.fromkeys((2, 3, 4), np.full(len(documents), float(limit)))
    for n, found in top_runs(table, flat, above=above).items():
        for index, (words, row) in enumerate(zip(documents, weights, strict=True)):
            exact = commonest(words, row, n)
            assert found[index] == exact or max(exact, found[index]) <= limit


def test_many_documents_share_the_buckets() -> None:
    documents = [["a", "b"] * (k % 4) for k in range(3000)]
    table, weights = drawn(documents)
    flat = np.array([weight for row in weights for weight in row], dtype=np.int64)
    found = top_runs(table, flat, above={2: np.zeros(len(documents))})[2]
    assert found.tolist() == [commonest(a, b, 2) for a, b in zip(documents, weights, strict=True)]
