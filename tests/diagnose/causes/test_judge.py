"""Time that several rules claim is given once; causes are in the order in which to mend them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from built_evidence import across, collective, evidence, job_of_ranks, pipeline, rank, straggler
from cause_examples import LATE, LATENCY, made, of
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.diagnose.causes import causes, lost_us
from meshwright.diagnose.causes.case import case_of, fact_us
from meshwright.diagnose.causes.judge import recoverable_us
from meshwright.diagnose.causes.rule import cause
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.split.facts import FACTS
from meshwright.diagnose.trace.columns import Left, Meta

PARTS = (
    "exposed_comm",
    "exposed_memory",
    "idle_dataloader",
    "idle_malloc_free",
    LATE,
    LATENCY,
    "idle_device_dependency",
    "idle_unknown_launch_not_in_trace",
    "idle_checkpoint",
    "idle_profiler",
)
SHARES = st.fixed_dictionaries({}, optional={p: st.floats(0, 0.1) for p in PARTS})
RATIOS = {"kernel_drift", "under_comm_slowdown"}
FIGURES = st.fixed_dictionaries(
    {}, optional={n: st.floats(0, 3 if n in RATIOS else 1e5) for n in FACTS}
)


@given(parts=SHARES, facts=FIGURES, calls=st.integers(0, 2000))
def test_no_time_is_told_twice(parts: dict, facts: dict, calls: int) -> None:
    small = collective("allreduce", count=calls, us=50.0, size=10_000)
    found_in = evidence(rank(parts=parts, facts=facts, collectives=(small,), world=8))
    case = case_of(found_in)
    found = causes(found_in)
    total = sum(c.lost_us for c in found)
    assert total <= case.step_us * (1 + 1e-9)
    assert total <= lost_us(found_in, found) + 1e-6
    assert all(c.lost_us >= 0 for c in found)
    by_turn = [recoverable_us(c) for c in found if c.share < 0.1 and not c.ranks]
    assert by_turn == sorted(by_turn, reverse=True)


@given(wait=st.floats(0, 6e4), share=st.floats(0, 1), over=st.floats(1, 3))
def test_waits_of_ranks_are_told_once(wait: float, share: float, over: float) -> None:
    late = (
        straggler("compute", share=share, over=over),
        straggler("host", number=1, share=1 - share),
    )
    found_in = job_of_ranks(8, wait_us=wait, stragglers=late, straggler_rank=3)
    found = causes(found_in)
    assert sum(c.lost_us for c in found) <= case_of(found_in).part_us("exposed_comm") + 1e-6


def test_parts_of_a_step_add_up_to_it() -> None:
    for found_in in (made(), made(dp=4), Evidence(pipeline=pipeline(idle=30.0))):
        case = case_of(found_in)
        assert sum(case.parts_us.values()) == pytest.approx(case.step_us)


def test_a_fact_of_the_window_becomes_one_of_a_step() -> None:
    case = case_of(of({LATE: 0.2}, facts={"sync_idle_us": 1234.0}))
    assert fact_us(case, "sync_idle_us") == pytest.approx(1234.0)


def test_the_more_specific_cause_has_the_time() -> None:
    late = of(
        {LATE: 0.3}, facts={"sync_idle_us": 29_000, "sync_calls": 90, "median_kernel_us": 9.0}
    )
    assert [c.code for c in causes(late)] == ["HST901"]
    both = of({LATE: 0.3}, facts={"sync_idle_us": 9_000, "sync_calls": 90, "median_kernel_us": 9.0})
    found = {c.code: c.lost_us for c in causes(both)}
    assert found == pytest.approx({"HST901": 9_000, "MOD901": 21_000})


def test_a_fault_comes_before_a_cost_by_design() -> None:
    uneven = {(p, d): 850_000.0 if p == 3 else 650_000.0 for p in range(4) for d in range(2)}
    found = causes(Evidence(pipeline=pipeline(uneven, m=4, idle=60.0)))
    assert [c.code for c in found] == ["MOD906", "MOD904"]
    assert found[1].lost_us > found[0].lost_us


def test_who_is_waited_for_comes_before_what_the_others_lose() -> None:
    ranks = tuple(
        rank(i, world=8, parts={"exposed_comm": 0.25, LATE: 0.3}, facts={"median_kernel_us": 9.0})
        for i in range(8)
    )
    late = (straggler("host", number=7),)
    found = causes(
        Evidence(ranks=ranks, across=across(8, wait_us=24_000, stragglers=late, straggler_rank=7))
    )
    assert [c.code for c in found] == ["HST907", "MOD901"]
    assert found[0].ranks == (7,)


def test_a_rank_of_two_that_is_last_half_the_time_is_no_straggler() -> None:
    late = (straggler("compute", number=0, share=0.55), straggler("host", number=1, share=0.45))
    found_in = job_of_ranks(2, wait_us=20_000, stragglers=late, straggler_rank=0)
    assert {c.code for c in causes(found_in)} == {"COM914"}


def test_guards_lower_the_confidence() -> None:
    sure = causes(of({LATE: 0.3}, facts={"median_kernel_us": 9.0}))[0]
    assert (sure.confidence, sure.guards) == ("high", ())
    loud = Meta(rank=0, world_size=1, with_stack=True)
    less = causes(of({LATE: 0.3}, facts={"median_kernel_us": 9.0}, meta=loud))[0]
    assert less.confidence == "medium"
    assert "stacks" in less.guards[0]
    one = causes(of({LATE: 0.3}, facts={"median_kernel_us": 9.0}, steps=(1e5,), world=8))[0]
    assert any("fewer than two steps" in g for g in one.guards)
    assert any("1 of 8 ranks" in g for g in one.guards)


def test_a_file_that_is_cut_off_is_told_to_know_less_of_the_device() -> None:
    end = Left(what="end of the file", count=1, time_us=0.0, reason="it ends within its events")
    cut = causes(evidence(replace(rank(parts={LATE: 0.5}), left=(end,))))
    assert all(any("cut off" in guard for guard in cause.guards) for cause in cut)
    assert all(cause.confidence != "high" for cause in cut)


def test_nothing_at_all_has_no_causes() -> None:
    assert causes(Evidence()) == ()
    assert lost_us(Evidence(), ()) is None


@pytest.mark.parametrize(
    ("code", "kind", "needs"),
    [("DAT101", "host", ()), ("DAT901", "luck", ()), ("DAT901", "host", ("crystal ball",))],
)
def test_a_rule_that_is_none_is_refused(code: str, kind: str, needs: tuple) -> None:
    with pytest.raises(MeshwrightError):
        cause(code, "no such thing", kind=kind, source="none", needs=needs)
