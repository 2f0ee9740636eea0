"""Sets of time against sets of moments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.split.intervals import (
    NOTHING,
    Spans,
    before,
    clip,
    inside,
    intersect,
    merged,
    pieces,
    subtract,
    total,
    union,
    within,
)

MOST = 40
intervals = st.lists(st.tuples(st.integers(0, MOST), st.integers(-2, 8)), max_size=12)
moments = st.lists(st.integers(-2, MOST + 10), max_size=10)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([a for a, _ in rows], dtype=np.int64)
    return start, start + np.array([n for _, n in rows], dtype=np.int64)


def spans(rows: list[tuple[int, int]]) -> Spans:
    return union(*columns(rows))


def covered(rows: list[tuple[int, int]]) -> set[int]:
    return {t for a, n in rows for t in range(a, a + n)}


def held(found: Spans) -> set[int]:
    return {t for a, b in zip(found.start, found.end, strict=True) for t in range(a, b)}


def is_sound(found: Spans) -> bool:
    apart = (found.start[1:] > found.end[:-1]).all()
    return bool(apart and (found.end > found.start).all())


@given(intervals)
def test_a_union_covers_what_its_intervals_cover_and_once(rows: list[tuple[int, int]]) -> None:
    found = spans(rows)
    assert held(found) == covered(rows)
    assert is_sound(found)
    assert total(found) == len(covered(rows))


@given(intervals, intervals)
def test_sets_add_meet_and_part_like_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    a, b = spans(one), spans(other)
    for found, wanted in (
        (intersect(a, b), covered(one) & covered(other)),
        (subtract(a, b), covered(one) - covered(other)),
        (merged(a, b), covered(one) | covered(other)),
    ):
        assert held(found) == wanted
        assert is_sound(found)


@given(intervals, st.integers(-2, MOST), st.integers(-2, MOST + 10))
def test_a_clip_is_the_part_inside(rows: list[tuple[int, int]], low: int, high: int) -> None:
    assert held(clip(spans(rows), low, high)) == covered(rows) & set(range(low, high))


@given(intervals, moments)
def test_time_before_a_moment_is_counted(rows: list[tuple[int, int]], at: list[int]) -> None:
    found = before(spans(rows), np.array(at, dtype=np.int64))
    assert found.tolist() == [sum(t < moment for t in covered(rows)) for moment in at]


@given(intervals, intervals)
def test_time_within_intervals_is_counted(
    rows: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    start, end = columns([(a, max(n, 0)) for a, n in asked])
    found = within(spans(rows), start, end)
    wanted = [len(covered(rows) & set(range(a, b))) for a, b in zip(start, end, strict=True)]
    assert found.tolist() == wanted


@given(intervals, moments)
def test_moments_are_in_a_set_or_not(rows: list[tuple[int, int]], at: list[int]) -> None:
    found = inside(spans(rows), np.array(at, dtype=np.int64))
    assert found.tolist() == [moment in covered(rows) for moment in at]


@given(intervals, moments)
def test_pieces_are_the_same_time_cut_where_asked(
    rows: list[tuple[int, int]], at: list[int]
) -> None:
    found = pieces(spans(rows), np.array(sorted(at), dtype=np.int64))
    assert held(found) == covered(rows)
    assert (found.end > found.start).all()
    assert (found.start[1:] >= found.end[:-1]).all()
    inner = {moment for moment in at if {moment - 1, moment} <= covered(rows)}
    assert inner <= set(found.start.tolist())


def test_nothing_stays_nothing() -> None:
    assert not NOTHING
    assert total(merged()) == 0
    assert not intersect(NOTHING, spans([(1, 2)]))
    assert held(subtract(spans([(1, 2)]), NOTHING)) == {1, 2}
