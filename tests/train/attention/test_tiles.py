"""No torch here: tiles are plain Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.train.attention import tiles as tiles_module
from meshwright.train.attention.runs import Run, order_of, runs_of
from meshwright.train.attention.tiles import Kind, tiles_of


@st.composite
def cases(draw):
    tokens = draw(st.sampled_from([8, 16, 24]))
    size = draw(st.sampled_from([1, 2, 4]))
    slices = draw(st.sampled_from(["zigzag", "contiguous"]))
    every = [runs_of(slices, rank=r, size=size, tokens=tokens // size) for r in range(size)]
    queries = draw(st.sampled_from(every))
    keys = draw(st.sampled_from([*every, (Run(0, tokens),), sum(every, ())]))
    cuts = draw(st.none() | st.sets(st.integers(1, tokens - 1), max_size=4))
    pieces = None if cuts is None else (tuple(sorted({0, tokens, *cuts})),)
    return queries, keys, draw(st.none() | st.integers(1, tokens)), pieces


def seen_by_definition(queries, keys, window, pieces):
    def document(place):
        return sum(place >= start for start in pieces[0]) if pieces else 0

    return {
        (i, j)
        for i, q in enumerate(p for run in queries for p in range(run.start, run.stop))
        for j, k in enumerate(p for run in keys for p in range(run.start, run.stop))
        if 0 <= q - k < (window or 10**6) and document(q) == document(k)
    }


def seen_in(tile, window):
    for i in range(tile.q_end - tile.q_begin):
        for j in range(tile.k_end - tile.k_begin):
            ago = i + tile.offset - j
            if tile.kind == Kind.FULL or (ago >= 0 and (not window or ago < window)):
                yield tile.q_begin + i, tile.k_begin + j


@given(cases(), st.sampled_from([1, 3, 256]))
def test_tiles_hold_every_visible_score_once(case, chunk):
    queries, keys, window, pieces = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles_module, "LEAST_CHUNK", chunk)
        tiles_of.cache_clear()
        tiles = tiles_of(queries, keys, window=window, pieces=pieces)
        tiles_of.cache_clear()
    found = [pair for tile in tiles for pair in seen_in(tile, window)]
    assert len(found) == len(set(found))
    assert set(found) == seen_by_definition(queries, keys, window, pieces)
    for tile in tiles:
        rows = range(tile.q_begin, tile.q_end)
        others = [t for t in tiles if t is not tile]
        assert tile.alone == (not any(set(rows) & set(range(t.q_begin, t.q_end)) for t in others))
        if tile.kind == Kind.CAUSAL:
            assert tile.offset == 0
            assert tile.q_end - tile.q_begin == tile.k_end - tile.k_begin


def test_whole_causal_rows_are_one_triangle():
    (tile,) = tiles_of((Run(0, 8),), (Run(0, 8),))
    assert (tile.kind, tile.alone, tile.row) == (Kind.CAUSAL, True, None)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_zigzag_ranks_have_the_same_work(size):
    every = [runs_of("zigzag", rank=r, size=size, tokens=16) for r in range(size)]
    works = [
        sum(
            sum(1 for _ in seen_in(tile, None))
            for keys in every
            for tile in tiles_of(queries, keys)
        )
        for queries in every
    ]
    assert max(works) - min(works) == 0


def test_order_of_tokens_that_lie_rank_by_rank():
    assert order_of((Run(4, 6), Run(0, 3))) == ((2, 5), (0, 2))
