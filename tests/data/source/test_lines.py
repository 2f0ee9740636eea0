from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.source.lines import lines_of
from meshwright.data.source.opening import Chunks

TEXT = st.lists(st.sampled_from([b"\n", b"a", b"bc", b"\r", b"longer than most"]), max_size=30).map(
    b"".join
)


def pieces(data: bytes, size: int):
    return iter([data[at : at + size] for at in range(0, len(data), size)])


def cut(data: bytes, borders: list[int], size: int, longest: int) -> list[tuple[bytes, bool]]:
    """The lines of consecutive ranges, each read on its own."""
    edges = sorted({0, len(data), *(b for b in borders if b <= len(data))})
    found = []
    for start, stop in pairwise(edges):
        before = start > 0
        chunks = Chunks(
            pieces(data[start - before : stop], size), pieces(data[stop:], size), before
        )
        number = 1
        for block in lines_of(chunks, longest_bytes=longest):
            assert block.first == number
            number += len(block.lines)
            found += [(line, block.too_long) for line in block.lines]
    return found


@given(TEXT, st.lists(st.integers(0, 60), max_size=5), st.integers(1, 9))
def test_any_ranges_and_chunks_give_the_lines_of_the_whole(data, borders, size):
    whole = data.split(b"\n")
    whole = whole[:-1] if not whole[-1] else whole
    assert cut(data, borders, size, 1000) == [(line, False) for line in whole]


@given(TEXT, st.lists(st.integers(0, 60), max_size=5), st.integers(1, 9))
def test_lines_over_the_limit_are_marked_wherever_they_are_cut(data, borders, size):
    whole = data.split(b"\n")
    whole = whole[:-1] if not whole[-1] else whole
    assert cut(data, borders, size, 5) == [(line[:160], len(line) > 5) for line in whole]


def test_of_a_line_over_the_limit_only_the_beginning_is_kept():
    blocks = list(lines_of(Chunks(pieces(b"x" * 10_000, 99), iter(()), False), longest_bytes=500))
    assert [(b.lines[0], b.too_long) for b in blocks] == [(b"x" * 160, True)]


def test_what_follows_the_range_comes_marked_when_it_is_asked_for():
    chunks = Chunks(iter([b"a\nb"]), iter([b"c\nd\ne"]), False)
    blocks = list(lines_of(chunks, longest_bytes=9, beyond=True))
    assert [(b.lines, b.beyond) for b in blocks] == [
        ([b"a"], False),
        ([b"bc"], False),
        ([b"d"], True),
        ([b"e"], True),
    ]
