"""Which cause is told first, where several are right."""

from pathlib import Path

import pytest

from meshwright.api.diagnosing import diagnose
from meshwright.diagnose.causes.judge import _turn
from meshwright.diagnose.causes.rule import find_cause
from meshwright.diagnose.diagnosis import Cause, Lever

MADE = Path(__file__).parents[2] / "traces" / "made"


@pytest.fixture(scope="module")
def straggling():
    """Rank 5 of a last stage that has the head besides is slow."""
    return diagnose([MADE / "tp2-pp2-dp2-straggler"])


def test_a_slow_rank_comes_before_the_heavy_stage_that_it_is_in(straggling):
    first = straggling.causes[0]
    assert (first.code, first.ranks) == ("CMP905", (5,))


def test_the_sentences_speak_of_one_cause(straggling):
    assert "CMP905 on rank 5" in straggling.summary[1]
    assert "rank 5" in straggling.summary[2]


def test_in_a_word_it_is_the_straggler(straggling):
    assert straggling.principal == "straggler (rank 5)"


def test_waits_are_no_longer_than_what_stands_exposed(straggling):
    lost = sum(cause.lost_us for cause in straggling.causes)
    assert lost <= straggling.lost_us * (1 + 1e-9)


def cause(code, share):
    rule = find_cause(code)
    return rule, Cause(
        code=code,
        title=rule.title,
        kind=rule.kind,
        lost_us=1e6 * share,
        share=share,
        message="",
        evidence=(),
        lever=Lever(text=""),
    )


def turn(code, share, *, is_explained):
    return _turn(*cause(code, share), waits_rule=False, is_explained=is_explained)


def test_why_comes_before_that_the_plan_is_missed():
    why = turn("DAT902", 0.06, is_explained=True)
    assert why < turn("CMP920", 0.4, is_explained=True)
    assert turn("CMP920", 0.4, is_explained=False) < turn("DAT902", 0.02, is_explained=False)


def test_what_costs_nothing_now_comes_last():
    assert turn("HST904", 0.0, is_explained=True) > turn("CMP920", 0.4, is_explained=True)
