"""Who is waited for, why, and who only passes waits on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs import Job, Op, compute, grid, group_of, meet, named, play
from meshwright.diagnose.across.join import across

GROUPS = grid(16, [("tp", 4), ("dp", 4)])


def steps_of(extra, *, steps=4, layers=4):
    """16 ranks; `extra(rank, step)` is what a rank does more at the beginning of each step."""

    def rank(r, step):
        inner = [
            op for _ in range(layers) for op in (compute(300.0), meet(group_of(GROUPS, "tp", r)))
        ]
        return [*extra(r, step), *inner, meet(group_of(GROUPS, "dp", r), 400.0)]

    program = [[rank(r, s) for r in range(16)] for s in range(steps)]
    return Job(world=16, groups=named(GROUPS), steps=program)


@pytest.mark.parametrize(
    ("kind", "because"),
    [
        ("compute", "compute"),
        ("loader", "data_loading"),
        ("host", "host"),
        ("copy", "memory_copy"),
    ],
)
def test_what_the_straggler_did_meanwhile(kind, because):
    found = across(play(steps_of(lambda r, _: [Op(kind, 2000.0)] if r == 9 else [])))
    (first,) = found.stragglers
    assert (first.rank, first.because) == (9, because)
    assert first.excess_us == pytest.approx(2000.0)
    assert first.over_median == pytest.approx(3200.0 / 1200.0)
    assert first.share == pytest.approx(1.0)
    assert found.straggler_rank == 9
    assert found.straggler_rotates is False
    # its tensor-parallel mates come late to their data-parallel groups for no fault of theirs
    assert {s.rank for s in found.passed_on} == {8, 10, 11}
    assert {(s.because, s.waits_for) for s in found.passed_on} == {("upstream", 9)}


def test_a_chain_of_groups_is_followed_to_its_root():
    groups = {"a": (0, 1), "b": (1, 2), "c": (2, 3)}
    first = [compute(3000.0), meet("a")]
    program = [
        [
            first,
            [compute(100.0), meet("a"), compute(50.0), meet("b")],
            [compute(100.0), meet("b"), compute(50.0), meet("c")],
            [compute(120.0), meet("c")],
        ]
    ] * 3
    found = across(play(Job(world=4, groups=groups, steps=program)))
    assert found.straggler_rank == 0
    assert found.stragglers[0].share > 0.9
    assert {s.rank for s in found.passed_on} == {1, 2}
    assert all(s.waits_for == 0 for s in found.passed_on)


def test_a_straggler_that_rotates():
    found = across(play(steps_of(lambda r, s: [Op("loader", 1500.0)] if r == 3 * s else [])))
    assert found.straggler_rotates is True
    assert {s.rank for s in found.stragglers if s.because == "data_loading"} == {0, 3, 6, 9}


def test_even_ranks_have_no_straggler():
    found = across(play(steps_of(lambda _r, _s: [])))
    assert found.stragglers == ()
    assert found.straggler_rank is None


def test_two_ranks_that_are_as_late_share_the_blame():
    found = across(play(steps_of(lambda r, _: [compute(2000.0)] if r in (1, 14) else [])))
    roots = {s.rank: s.share for s in found.stragglers if s.because == "compute"}
    assert roots == {1: pytest.approx(0.5, abs=0.02), 14: pytest.approx(0.5, abs=0.02)}


def test_a_slow_link_is_no_slow_rank():
    def rank(r):
        transfer = 900.0 if r in (4, 5, 6, 7) else 100.0
        inner = [
            op
            for _ in range(4)
            for op in (compute(300.0), meet(group_of(GROUPS, "tp", r), transfer))
        ]
        return [*inner, meet(group_of(GROUPS, "dp", r), 400.0)]

    job = Job(world=16, groups=named(GROUPS), steps=[[rank(r) for r in range(16)]] * 3)
    found = across(play(job))
    roots = found.stragglers
    assert {s.rank for s in roots} == {4, 5, 6, 7}
    assert {s.because for s in roots} == {"communication"}
    slow = [link for link in found.links if link.slow]
    assert [link.group for link in slow] == ["tp1"]
    assert slow[0].of_peers == pytest.approx(100.0 / 900.0, rel=0.01)
    assert found.links[0] is slow[0]


def test_computation_hides_waits():
    """Waits that computation covers delay nobody."""
    job = steps_of(lambda r, _: [compute(2000.0)] if r == 9 else [])
    ranks = play(job)
    hidden = [
        replace(r, instances=replace(r.instances, exposed_ns=r.instances.exposed_ns * 0 + (n == 0)))
        for n, r in enumerate(ranks)
    ]
    assert across(hidden).stragglers == ()
