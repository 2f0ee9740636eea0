"""Repeated runs of words against a definition that looks at every run."""

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.words.runs import Weighed, repeated_runs, top_runs
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


def drawn(documents: list[list[str]]) -> tuple[Weighed, list[list[int]]]:
    """The documents, with weights of their words; each counts for 100."""
    weights = [[1 + (7 * i + ord(word)) % 5 for i, word in enumerate(words)] for words in documents]
    table = Table.of(documents_of([" ".join(words) for words in documents]))
    weighed = Weighed(
        words=table.word_hash,
        weights=np.array([weight for row in weights for weight in row], dtype=np.int64),
        bounds=table.word_bounds,
        whole=np.full(len(documents), 100),
    )
    return weighed, weights


@given(st.one_of(DOCUMENTS, REPETITIVE), st.integers(1, 8))
@settings(max_examples=300)
def test_all_repeated_runs(documents: list[list[str]], n: int) -> None:
    weighed, weights = drawn(documents)
    found = repeated_runs(weighed, {n: -1.0})[n]
    expected = [covered(a, b, n) / 100 for a, b in zip(documents, weights, strict=True)]
    assert found.tolist() == expected


@given(st.one_of(DOCUMENTS, REPETITIVE), st.lists(st.integers(0, 60), min_size=6, max_size=6))
def test_the_first_limit_that_is_broken_is_found(
    documents: list[list[str]], numbers: list[int]
) -> None:
    weighed, weights = drawn(documents)
    limits = {n: number / 100 for n, number in enumerate(numbers, start=2)}
    found = repeated_runs(weighed, limits)
    for index, (words, row) in enumerate(zip(documents, weights, strict=True)):
        exact = {n: covered(words, row, n) / 100 for n in limits}
        broken = next((n for n in limits if exact[n] > limits[n]), None)
        seen = {n: float(found[n][index]) for n in limits}
        assert next((n for n in limits if seen[n] > limits[n]), None) == broken
        if broken:
            assert seen[broken] == exact[broken]


@given(st.one_of(DOCUMENTS, REPETITIVE), st.integers(-1, 60))
def test_top_runs(documents: list[list[str]], limit: int) -> None:
    weighed, weights = drawn(documents)
    for n, found in top_runs(weighed, dict.fromkeys((2, 3, 4), limit / 100)).items():
        for index, (words, row) in enumerate(zip(documents, weights, strict=True)):
            exact = commonest(words, row, n) / 100
            assert found[index] == exact or max(exact, found[index]) <= limit / 100


def test_many_documents_share_the_buckets() -> None:
    documents = [["a", "b"] * (k % 4) for k in range(3000)]
    weighed, weights = drawn(documents)
    found = top_runs(weighed, {2: 0.0})[2]
    expected = [commonest(a, b, 2) / 100 for a, b in zip(documents, weights, strict=True)]
    assert found.tolist() == expected
