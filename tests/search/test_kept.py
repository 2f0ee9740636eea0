"""What is kept does not depend on the order in which blocks come; the front is a front."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.search.kept import DETAILS, HIDDEN, Kept, best_of, joined, pareto, threshold, weed

POINTS = st.lists(
    st.tuples(
        st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2])
    ),
    min_size=1,
    max_size=40,
)


def kept(points):
    step, memory, tp, micro = (np.array(c) for c in zip(*points, strict=True))
    return Kept(
        fields={"tp": tp, "micro_batch_size": micro, "overlap_tp": tp % 2 == 0},
        step_s=step.astype(float),
        peak_bytes=memory.astype(float),
        upper_bytes=memory + 1.0,
    )


def rows(some):
    return list(
        zip(
            *(c.tolist() for c in (*some.fields.values(), some.step_s, some.peak_bytes)),
            strict=True,
        )
    )


@given(POINTS, st.integers(1, 39), st.integers(1, 8), st.sampled_from(["throughput", "memory"]))
def test_best_of_parts_is_best_of_the_whole(points, cut, keep, objective):
    whole = best_of(kept(points), objective, keep)
    parts = None
    for part in (points[cut:], points[:cut]):
        if part:
            parts = best_of(joined(parts, kept(part)), objective, keep)
    assert rows(parts) == rows(whole)


@given(POINTS, st.integers(1, 8))
def test_best_of_keeps_one_of_each_look(points, keep):
    for hidden in (HIDDEN, DETAILS):
        found = best_of(kept(points), "throughput", keep, hidden=hidden)
        looks = [
            tuple(c[i] for n, c in found.fields.items() if n not in hidden)
            for i in range(len(found))
        ]
        assert len(looks) == len(set(looks)) <= keep
        assert found.step_s[0] == min(p[0] for p in points)
        assert found.step_s.tolist() == sorted(found.step_s)


@given(POINTS, st.integers(1, 39))
def test_the_front_of_parts_is_the_front_of_the_whole(points, cut):
    whole = pareto(kept(points))
    parts = None
    for part in (points[cut:], points[:cut]):
        if part:
            some = kept(part)
            alive = weed(parts, some.step_s, some.peak_bytes)
            parts = pareto(joined(parts, some.rows(np.flatnonzero(alive))))
    assert rows(parts) == rows(whole)


@given(POINTS)
def test_nothing_beats_the_front(points):
    front = pareto(kept(points))
    for step, memory in zip(front.step_s, front.peak_bytes, strict=True):
        beaten = [p for p in points if p[0] <= step and p[1] <= memory and p[:2] != (step, memory)]
        assert not beaten
    for p in points:
        assert ((front.step_s <= p[0]) & (front.peak_bytes <= p[1])).any()


def test_a_set_that_is_not_full_has_no_threshold():
    some = kept([(1, 1, 1, 1), (2, 2, 2, 1)])
    assert threshold(some, "throughput", 3) == float("inf")
    assert threshold(some, "throughput", 2) == 2.0
    assert threshold(None, "throughput", 1) == float("inf")
