"""Packing: every token once, no row too long, and as few rows and cuts as is promised."""

from __future__ import annotations

import bisect
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.pack.best_fit import Rooms, best_fit
from meshwright.data.pack.rows import Rows, columns, places_in_row
from meshwright.data.pack.strategy import STRATEGIES, fills, layout_of, pack

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTHS = st.lists(st.integers(0, 70), max_size=60).map(lambda found: np.array(found, np.int32))
SEQ_LENS = st.integers(1, 40)
strategies = pytest.mark.parametrize("strategy", STRATEGIES)


def documents(count: int, seed: int = 0) -> np.ndarray:
    """Lengths as documents have them: half of them below 1,500 tokens, some of 100,000."""
    lengths = np.exp(np.random.default_rng(seed).normal(7.3, 1.2, count))
    return np.minimum(lengths + 1, 500_000).astype(np.int32)


@strategies
@given(lengths=LENGTHS, seq_len=SEQ_LENS)
def test_every_token_is_in_one_place(strategy: str, lengths: np.ndarray, seq_len: int) -> None:
    rows = pack(lengths, seq_len, strategy=strategy)
    held: list[tuple[int, int]] = []
    for document, offset, length in zip(rows.document, rows.offset, rows.length, strict=True):
        held += [(document, place) for place in range(offset, offset + length)]
    wanted = [(document, place) for document, n in enumerate(lengths) for place in range(n)]
    assert sorted(held) == wanted


@strategies
@given(lengths=LENGTHS, seq_len=SEQ_LENS)
def test_no_row_is_too_long_or_empty(strategy: str, lengths: np.ndarray, seq_len: int) -> None:
    rows = pack(lengths, seq_len, strategy=strategy)
    assert (rows.tokens <= seq_len).all()
    assert (np.diff(rows.bounds) >= 1).all()
    assert (rows.length >= 1).all()
    assert rows.bounds[-1] == len(rows.length)


@given(lengths=LENGTHS, seq_len=SEQ_LENS)
def test_concatenation_is_consecutive(lengths: np.ndarray, seq_len: int) -> None:
    rows = pack(lengths, seq_len, strategy="concatenate")
    flat = [(d, o) for d, n in enumerate(lengths) for o in range(n)]
    starts = [flat[at] for at in range(0, len(flat), seq_len)]
    firsts = rows.bounds[:-1]
    assert list(zip(rows.document[firsts], rows.offset[firsts], strict=True)) == starts
    assert (rows.tokens[:-1] == seq_len).all()
    assert (rows.tokens * seq_len >= rows.cost).all()


@given(lengths=LENGTHS, seq_len=SEQ_LENS)
def test_best_fit_needs_as_many_rows_as_its_definition(lengths: np.ndarray, seq_len: int) -> None:
    assert len(best_fit(lengths, seq_len)) == rows_by_definition(lengths, seq_len)


def rows_by_definition(lengths: np.ndarray, seq_len: int) -> int:
    """Longest first, each where the least room is left: one by one."""
    pieces = [n % seq_len for n in lengths.tolist() if n % seq_len]
    full = sum(n // seq_len for n in lengths.tolist())
    rooms: list[int] = []
    for piece in sorted(pieces, reverse=True):
        place = bisect.bisect_left(rooms, piece)
        room = rooms.pop(place) if place < len(rooms) else seq_len
        bisect.insort(rooms, room - piece)
    return full + len(rooms)


@pytest.mark.parametrize("seq_len", [1000, 1023, 1024, 1025, 4096, 70_000])
def test_best_fit_by_definition_where_rooms_need_two_levels(seq_len: int) -> None:
    lengths = documents(3000, seed=seq_len)
    assert len(best_fit(lengths, seq_len)) == rows_by_definition(lengths, seq_len)


@given(lengths=LENGTHS, seq_len=SEQ_LENS)
def test_only_documents_longer_than_a_row_are_cut_by_best_fit(
    lengths: np.ndarray, seq_len: int
) -> None:
    rows = best_fit(lengths, seq_len)
    pieces = np.bincount(rows.document, minlength=len(lengths))
    assert (pieces == -(-lengths // seq_len)).all()


@given(lengths=LENGTHS, seq_len=SEQ_LENS)
def test_what_is_said_of_strategies_is_what_they_make(lengths: np.ndarray, seq_len: int) -> None:
    said = fills(lengths, seq_len)
    for name in STRATEGIES:
        rows = pack(lengths, seq_len, strategy=name)
        of_row = np.repeat(np.arange(len(rows)), np.diff(rows.bounds))
        pairs = set(zip(rows.document.tolist(), of_row.tolist(), strict=True))
        in_rows = np.bincount([document for document, _ in pairs], minlength=1)
        assert said[name].rows == len(rows)
        assert said[name].padding == len(rows) * seq_len - int(lengths.sum())
        assert said[name].cut == np.count_nonzero(in_rows > 1)


def test_best_fit_wastes_and_cuts_little_at_4096() -> None:
    lengths = documents(100_000)
    said = fills(lengths, 4096)
    rows = said["best-fit"].rows * 4096
    assert said["best-fit"].padding / rows < 0.001
    assert said["best-fit"].cut == np.count_nonzero(lengths > 4096)
    assert said["best-fit"].cut < 0.45 * said["concatenate"].cut
    assert said["padded"].padding / (said["padded"].rows * 4096) > 0.4


def test_best_fit_places_a_million_documents_in_seconds(assert_linear) -> None:
    def placing(count: int) -> Callable[[], object]:
        lengths = documents(count)
        return lambda: best_fit(lengths, 4096)

    assert_linear(placing, 1_000_000, limit_s=10)  # 0.5 where nothing else runs


def test_equal_documents_stand_in_their_order() -> None:
    rows = best_fit(np.full(6, 5, dtype=np.int32), 10)
    assert rows.document.tolist() == [0, 1, 2, 3, 4, 5]
    assert rows.tokens.tolist() == [10, 10, 10]


def test_best_fit_is_a_known_packing() -> None:
    rows = best_fit(np.array([7, 4, 3, 12, 6], dtype=np.int32), 10)
    found = [
        [(int(rows.document[p]), int(rows.length[p])) for p in range(*rows.bounds[r : r + 2])]
        for r in range(len(rows))
    ]
    assert sorted(map(sorted, found)) == [[(0, 7), (2, 3)], [(1, 4), (4, 6)], [(3, 2)], [(3, 10)]]


@given(st.lists(st.integers(1, 5000), max_size=30), st.integers(1, 5000))
def test_the_least_room_that_fits(rooms: list[int], wanted: int) -> None:
    found = Rooms(5000)
    for row, room in enumerate(rooms):
        found.add(room, [row])
    assert found.least(wanted) == min((room for room in rooms if room >= wanted), default=-1)
    for room in rooms:
        found.take(room, len(rooms))
    assert found.least(1) == -1


@given(lengths=LENGTHS, seq_len=SEQ_LENS, seed=st.integers(0, 99))
def test_rows_in_another_order_keep_their_pieces(
    lengths: np.ndarray, seq_len: int, seed: int
) -> None:
    rows = best_fit(lengths, seq_len)
    order = np.random.default_rng(seed).permutation(len(rows))
    moved = rows.take(order)
    for place, row in enumerate(order.tolist()):
        assert pieces(moved, place) == pieces(rows, row)


def pieces(rows: Rows, row: int) -> list[tuple[int, int, int]]:
    part = slice(rows.bounds[row], rows.bounds[row + 1])
    columns = (rows.document[part], rows.offset[part], rows.length[part])
    return [tuple(map(int, piece)) for piece in zip(*columns, strict=True)]


@pytest.mark.parametrize("layout", ["documents", "rows"])
def test_columns_of_a_plan(layout: str) -> None:
    rows = pack(np.array([3, 9, 2], dtype=np.int32), 5, strategy="concatenate")
    row, piece = columns(rows, layout=layout, next_tokens=np.arange(len(rows.length)))
    assert row["first"].tolist() == [0, 2, 3]
    assert row["pieces"].tolist() == [2, 1, 2]
    assert row["tokens"].tolist() == [5, 5, 4]
    assert row["cost"].tolist() == [9 + 4, 25, 4 + 4]
    assert piece["document"].tolist() == [0, 1, 1, 1, 2]
    assert piece["offset"].tolist() == [0, 0, 2, 7, 0]
    assert piece["next"].tolist() == [0, 1, 2, 3, 4]
    if layout == "rows":
        assert piece["sequence"].tolist() == [0, 0, 1, 2, 2]
        assert piece["start"].tolist() == places_in_row(rows).tolist() == [0, 3, 0, 0, 2]
    else:
        assert piece["sequence"].tolist() == piece["document"].tolist()
        assert piece["start"].tolist() == piece["offset"].tolist()


def test_layouts() -> None:
    assert layout_of("best-fit", "auto") == "rows"
    assert layout_of("concatenate", "auto") == layout_of("padded", "auto") == "documents"
    assert layout_of("best-fit", "documents") == "documents"


@strategies
def test_long_rows_cost_nothing_where_documents_are_short(strategy: str) -> None:
    lengths = documents(2000)
    tracemalloc.start()
    rows = pack(lengths, 2**24, strategy=strategy)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows.tokens.sum() == lengths.sum()
    assert peak_bytes < 2 << 20
