"""The engine: decorator, scope, findings, pruning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Severity
from meshwright.plan.job import Job
from meshwright.plan.plan import Recompute
from meshwright.rules.example import build_job
from meshwright.rules.rule import Rule, check, find_rule, mask, prune, rule


def _rule(code: str = "MOD399", *, reads: tuple[str, ...] = ("tp",)) -> Rule:
    """A rule that fires where tp is over 4."""

    @rule(
        code,
        "wide",
        severity=Severity.ERROR,
        section="5.3",
        source="s",
        reads=reads,
    )
    def narrow(job: Job) -> Any:
        """First line
        of the summary.

        More.

        Fails: plan(tp=8,
            pp=1)
        Passes: plan(tp=4)
        """
        return job.plan.tp > 4

    return narrow


def test_page_is_read_from_the_docstring() -> None:
    narrow = _rule()
    assert narrow.summary == "First line of the summary."
    assert narrow.examples("Fails") == ("plan(tp=8, pp=1)",)
    assert narrow.examples("Passes") == ("plan(tp=4)",)


@pytest.mark.parametrize("code", ["MOD1", "XYZ101", "DAT901", "dat101"])
def test_a_bad_code_is_refused(code: str) -> None:
    with pytest.raises(MeshwrightError, match="not a rule code"):
        _rule(code)


def test_an_unknown_plan_field_is_refused() -> None:
    with pytest.raises(MeshwrightError, match="tensor"):
        _rule(reads=("tp", "tensor"))


def test_finding_carries_message_reason_and_fix() -> None:
    narrow = _rule()
    narrow.message(lambda job: f"tp = {job.plan.tp}")
    narrow.fix(lambda _job: {"tp": (1, 2, 4), "recompute": (Recompute.FULL,), "nccl_algo": (None,)})
    found = check(build_job(tp=8), [narrow])[0]
    assert found.message == "tp = 8"
    assert found.reason == "First line of the summary."
    assert found.key == "tp"
    assert found.hint == "tp = 1, 2 or 4; recompute = full; unset nccl_algo"


def test_check_puts_errors_first_and_wants_one_plan() -> None:
    job = build_job(tp=3, seq_len=4096, overlap_grad_reduce=False, dp=8)
    severities = [int(f.severity) for f in check(job)]
    assert severities == sorted(severities, reverse=True)
    with pytest.raises(MeshwrightError, match="one plan"):
        check(build_job(tp=np.array([1, 2])))


@pytest.mark.parametrize("zero", ["tp", "pp", "cp", "dp", "micro_batch_size", "dp_replicate", "ep"])
def test_a_degree_of_zero_is_a_finding_and_not_a_traceback(zero: str) -> None:
    assert "DAT105" in {f.code for f in check(build_job(**{"dp": 8, zero: 0}))}


def test_prune_counts_first_and_independent() -> None:
    job = build_job(tp=np.array([1, 2, 8, 8]), pp=np.array([1, 2, 1, 2]), dp=8)
    narrow = _rule()
    flat = _rule("MOD398", reads=("pp",))
    flat.condition = lambda job: job.plan.pp > 1
    pruned = prune(job, [narrow, flat], independent=True)
    assert pruned.alive.tolist() == [True, False, False, False]
    assert pruned.first == {"MOD399": 2, "MOD398": 1}
    assert pruned.fired == {"MOD399": 2, "MOD398": 2}
    survivors = prune(job, [narrow, flat])
    assert survivors.first == pruned.first
    assert survivors.alive.tolist() == pruned.alive.tolist()


def test_a_rule_on_what_does_not_vary_prunes_all_or_none() -> None:
    job = build_job(position_embeddings=1024, tp=np.array([1, 2, 4]))
    table = find_rule("dat116")
    assert table is not None
    assert not prune(job, [table]).alive.any()
    assert prune(job, [table]).first == {"DAT116": 3}
    assert np.shape(mask(job, [table])["DAT116"]) == ()


def test_pruning_nothing_left_and_nothing_to_do() -> None:
    job = build_job(tp=np.array([8, 8]), dp=8)
    assert prune(job, [_rule(), _rule("MOD398")]).first == {"MOD399": 2, "MOD398": 0}
    assert prune(job, []).alive.tolist() == [True, True]


def test_find_rule_ignores_case_and_knows_what_is_missing() -> None:
    found = find_rule("com101")
    assert found is not None
    assert found.code == "COM101"
    assert find_rule("COM999") is None
