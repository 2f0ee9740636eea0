"""Stretches of nested events: each moment is given once, to the innermost."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.split.pieces import Pieces, innermost, outside
from meshwright.diagnose.trace.columns import Operators

spans = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 200), st.integers(0, 2)), max_size=30
)


def operators(rows):
    """Operators of (start, length, thread), in the order that tables have."""
    rows = sorted(((s, s + n, t) for s, n, t in rows), key=lambda r: (r[0], -r[1]))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    none = np.full(len(table), -1, dtype=np.int64)
    return Operators(
        start_ns=table[:, 0],
        end_ns=table[:, 1],
        name=none.astype(np.int32),
        kind=np.zeros(len(table), dtype=np.int8),
        thread=table[:, 2].astype(np.int32),
        external=none,
        message=none.astype(np.int32),
        seq=none,
        shape=none.astype(np.int32),
    )


def moments(starts, ends):
    """Every whole moment in spans."""
    found = set()
    for start, end in zip(starts, ends, strict=True):
        found.update(range(start, end))
    return found


def test_an_operator_has_what_those_inside_it_leave():
    ops = operators([(0, 100, 0), (10, 20, 0), (15, 5, 0), (50, 10, 0)])
    pieces = innermost(ops, np.arange(4))
    found = list(
        zip(pieces.row.tolist(), pieces.start_ns.tolist(), pieces.end_ns.tolist(), strict=True)
    )
    assert found == [
        (0, 0, 10),
        (1, 10, 15),
        (2, 15, 20),
        (1, 20, 30),
        (0, 30, 50),
        (3, 50, 60),
        (0, 60, 100),
    ]


@given(rows=spans)
def test_each_moment_of_a_thread_is_given_once(rows):
    ops = operators(rows)
    pieces = innermost(ops, np.arange(len(ops)))
    for thread in (0, 1, 2):
        own = ops.thread[pieces.row] == thread
        starts, ends = pieces.start_ns[own].tolist(), pieces.end_ns[own].tolist()
        assert all(b > a for a, b in zip(starts, ends, strict=True))
        given_ = sum(b - a for a, b in zip(starts, ends, strict=True))
        roots = ops.thread == thread
        there = moments(ops.start_ns[roots].tolist(), ops.end_ns[roots].tolist())
        mine = moments(starts, ends)
        assert given_ == len(mine)
        assert mine <= there


@given(rows=spans, cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=8))
def test_nothing_is_left_inside_what_is_cut_out(rows, cuts):
    ops = operators([(s, n, 0) for s, n, _ in rows])
    pieces = Pieces(row=np.arange(len(ops)), start_ns=ops.start_ns, end_ns=ops.end_ns)
    edges, at = [], 0
    for gap, length in cuts:
        edges.append((at + gap, at + gap + length))
        at += gap + length
    apart = np.array(edges, dtype=np.int64).reshape(-1, 2)
    left = outside(pieces, apart)
    taken = moments(apart[:, 0].tolist(), apart[:, 1].tolist())
    for row in range(len(ops)):
        own = left.row == row
        kept = moments(left.start_ns[own].tolist(), left.end_ns[own].tolist())
        assert kept == set(range(int(ops.start_ns[row]), int(ops.end_ns[row]))) - taken
