"""All ranks replayed: a planted fault taken away gives the step of the run without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from making import Spec, write_run
from meshwright.diagnose.across.join import across
from meshwright.diagnose.path.find import critical_path
from meshwright.diagnose.path.ledger import ledger_of
from meshwright.diagnose.path.replay import Change, Pace, replayed_us, what_if
from meshwright.diagnose.split.rank import rank_of
from meshwright.diagnose.trace.read import read_trace


def ranks_of(spec, folder):
    made = []
    for file in write_run(spec, folder):
        trace = read_trace(file)
        rank = rank_of(trace)
        made.append(replace(rank, path=critical_path(trace, rank)))
    return made


def step_us(ranks):
    return float(np.mean([[s.dur_us for s in r.device_steps] for r in ranks]))


NO_TP, NO_DP, NO_EP, NO_PP = (
    {"slow_axis": a, "slow_axis_factor": 0} for a in ("tp", "dp", "ep", "pp")
)
PIPE = {"pp": 4, "micro_batches": 8}
EXPERTS = {"dp": 4, "ep": 4, "experts": 8}
PLANTED = [
    # the run with a fault, the run without it, the question that takes the fault away
    ({"dp": 4, "slow_rank": 1}, {"dp": 4}, "rank 1 as fast as the median", 0.02),
    ({"dp": 4, "slow_rank": 0, "slow_rotates": True}, {"dp": 4}, "no stragglers", 0.02),
    ({"dp": 4, "gc_us": 40_000}, {"dp": 4}, "no stragglers", 0.02),
    ({"dp": 4, "sequence_imbalance": 1.0}, {"dp": 4}, "no stragglers", 0.03),
    ({**EXPERTS, "expert_imbalance": 3}, EXPERTS, "no stragglers", 0.02),
    ({"dp": 4, "loader_us": 30_000}, {"dp": 4, "loader_us": 0}, "loader kept up", 0.005),
    (
        {"dp": 4, "loader_us": 30_000, "loader_rank": 2},
        {"dp": 4, "loader_us": 0},
        "loader kept up",
        0.005,
    ),
    (
        {"dp": 2, "small_kernels": True},
        {"dp": 2, "small_kernels": True, "launch_us": 0, "operator_us": 0},
        "launch free",
        0.03,
    ),
    ({"tp": 4, "node_gbps": 50}, {"tp": 4, **NO_TP}, "tp communication free", 0.01),
    (
        {"tp": 2, "dp": 4, "ranks_per_host": 2},
        {"tp": 2, "dp": 4, **NO_DP},
        "dp communication free",
        0.02,
    ),
    (
        {**EXPERTS, "ranks_per_host": 1},
        {**EXPERTS, "ranks_per_host": 1, **NO_EP},
        "ep communication free",
        0.01,
    ),
    (
        {**PIPE, "network_gbps": 5, "ranks_per_host": 1},
        {**PIPE, **NO_PP},
        "pp communication free",
        0.05,
    ),
    ({**PIPE, "slow_stage": 1, "stage_factor": 2.5}, PIPE, "stage 1 as fast as the rest", 0.03),
    (
        {"tp": 2, "pp": 2, "cp": 2, "dp": 2, "slow_rank": 5},
        {"tp": 2, "pp": 2, "cp": 2, "dp": 2},
        "rank 5 as fast as the median",
        0.03,
    ),
]


@pytest.mark.parametrize(
    ("fault", "mended", "question", "tolerance"), PLANTED, ids=lambda v: str(v)
)
def test_a_question_predicts_the_run_without_the_fault(
    fault, mended, question, tolerance, tmp_path
):
    ranks = ranks_of(Spec(**fault), tmp_path / "ill")
    answers = what_if(ranks, across(ranks))
    assert answers["as measured"] == pytest.approx(step_us(ranks), rel=0.001)
    healthy = step_us(ranks_of(Spec(**mended), tmp_path / "healthy"))
    assert answers[question] == pytest.approx(healthy, rel=tolerance)
    assert all(answers[k] <= answers["as measured"] for k in answers)


def test_clocks_apart_change_no_answer(tmp_path):
    spec = Spec(dp=4, slow_rank=1, ranks_per_host=2)
    apart = replace(spec, clock_shift_us=(0.0, 750_000.0))
    plain, shifted = (ranks_of(s, tmp_path / str(i)) for i, s in enumerate((spec, apart)))
    answers = [what_if(ranks, across(ranks)) for ranks in (plain, shifted)]
    assert answers[0] == pytest.approx(answers[1], rel=0.001)
    assert "no stragglers" in answers[0]


def test_ranks_that_do_not_hang_together_have_no_answers(tmp_path):
    ranks = ranks_of(Spec(dp=2, steps=1, layers=1), tmp_path)
    together = across(ranks)
    assert what_if(ranks[:1], together) == {}
    alone = [replace(r, instances=None) for r in ranks]
    assert what_if(alone, together) == {}


def test_waiting_for_ranks_without_a_trace_is_no_transfer(tmp_path):
    spec = Spec(dp=4, slow_rank=3, slow_rotates=True, layers=2)  # slow in the first step
    ranks = ranks_of(spec, tmp_path)
    whole, part = (what_if(r, across(r)) for r in (ranks, ranks[:3]))
    assert part["communication free"] == pytest.approx(whole["communication free"], rel=0.03)
    assert whole["communication free"] > 0.95 * whole["as measured"]


@pytest.fixture(name="ledger", scope="module")
def _ledger(tmp_path_factory):
    spec = Spec(tp=2, pp=2, dp=2, layers=2, steps=2, slow_rank=3, micro_batches=3)
    ranks = ranks_of(spec, tmp_path_factory.mktemp("made"))
    return ledger_of(ranks, across(ranks), most_rows=10**6)


@settings(max_examples=30)
@given(data=st.data())
def test_taking_time_away_never_lengthens_a_step(ledger, data):
    shares = st.floats(0, 1)
    before = None
    paces = [Pace(p, p) for p in (np.array([0.0, e[-1]]) for e in ledger.clocks.edges)]
    transfer = ledger.transfer
    for _ in range(3):
        took = replayed_us(ledger, Change(transfer=transfer, paces=tuple(paces)))
        assert before is None or took <= before + 1e-6
        before = took
        row = data.draw(st.integers(0, len(paces) - 1))
        points = np.linspace(0, ledger.clocks.edges[row][-1], 5)
        pieces = np.diff(np.interp(points, *paces[row]))
        shorter = pieces * np.array(data.draw(st.lists(shares, min_size=4, max_size=4)))
        paces[row] = Pace(points, np.concatenate(([0.0], np.cumsum(shorter))))
        lane = data.draw(st.sampled_from(sorted(set(ledger.lane.tolist()))))
        transfer = np.where(ledger.lane == lane, 0, transfer)


def test_many_ranks_are_replayed_in_little_time(tmp_path, cpu_s):
    ranks = ranks_of(Spec(dp=16, sharded=True, layers=2, steps=2), tmp_path)
    together = across(ranks)
    assert cpu_s(lambda: what_if(ranks, together)) < 2.0  # 0.1 alone
