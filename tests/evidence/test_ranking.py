from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.evidence.ranking import average_ranks, groups, regret, spearman, summarize
from meshwright.evidence.row import Measurement, Run


@pytest.fixture
def make_run(make_row):
    def build(name: str, seconds: float, **changes: str) -> Run:
        return Run(
            id=name,
            source=changes.pop("source", "s"),
            source_ref="",
            completeness="full",
            check="ok",
            line=1,
            row=make_row(**changes),
            measured=Measurement(step_time_s=seconds),
        )

    return build


def test_ties_share_their_mean_rank() -> None:
    assert average_ranks([30, 10, 20, 20]).tolist() == [4.0, 1.0, 2.5, 2.5]


def test_spearman_of_known_series() -> None:
    # the textbook example of IQ against hours of television: rho = -29/165
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=30, unique=True))
def test_spearman_sees_order_alone(values: list[int]) -> None:
    stretched = np.log(values) * 3 + 1
    assert spearman(values, stretched) == pytest.approx(1.0)
    assert spearman(values, -stretched) == pytest.approx(-1.0)


def test_regret_is_of_the_plan_ranked_first() -> None:
    assert regret([1.0, 2.0, 3.0], [12.0, 10.0, 11.0]) == pytest.approx(0.2)
    assert regret([1.0, 1.0, 3.0], [12.0, 10.0, 11.0]) == pytest.approx(0.1)


def test_runs_group_by_all_but_the_plan(make_run) -> None:
    runs = [
        make_run("a", 3.0, tp="1", dp="8"),
        make_run("b", 2.0, tp="2", dp="4"),
        make_run("c", 1.0, tp="4", dp="2"),
        make_run("d", 1.0, tp="4", dp="2", seq_len="4096"),
        make_run("e", 1.0, tp="4", dp="2", source="other"),
    ]
    found = groups(runs, {"a": 1.0, "b": 2.0, "c": 3.0, "d": 1.0, "e": 1.0})
    assert len(found) == 1
    assert found[0].ids == ("a", "b", "c")
    assert found[0].regret == pytest.approx(2.0)
    assert found[0].spearman == pytest.approx(-1.0)


def test_a_plan_measured_often_counts_once_by_its_median(make_run) -> None:
    plan = {"tp": "1", "dp": "8"}
    runs = [
        *(make_run(f"a{i}", s, **plan) for i, s in enumerate((1.0, 5.0, 6.0))),
        make_run("b", 4.0, tp="2", dp="4"),
        make_run("c", 8.0, tp="4", dp="2"),
    ]
    found = groups(runs, {run.id: 1.0 if run.id[0] == "a" else 2.0 for run in runs})
    assert found[0].plans == 3
    assert found[0].regret == pytest.approx(0.25)


def test_two_plans_are_no_group(make_run) -> None:
    runs = [make_run("a", 3.0, tp="1", dp="8"), make_run("b", 2.0, tp="2", dp="4")]
    assert groups(runs, {"a": 1.0, "b": 2.0}) == ()
    assert summarize(()) is None


def test_the_worst_group_is_named(make_run) -> None:
    seconds = {"1": 3.0, "2": 2.0, "4": 1.0}
    runs = [
        make_run(f"{seq}-{tp}", s, seq_len=seq, tp=tp, dp=str(8 // int(tp)))
        for seq in ("1024", "2048")
        for tp, s in seconds.items()
    ]
    predicted = {run.id: run.measured.step_time_s or 0 for run in runs}
    predicted |= {"2048-1": 0.5}
    found = summarize(groups(runs, predicted))
    assert found is not None
    assert (found.groups, found.worst_regret) == (2, pytest.approx(2.0))
    assert "seq 2048" in found.worst_group
