"""Every cause has an example in which it is named, and one in which it is not."""

from __future__ import annotations

import pytest
from cause_examples import BUILT, LATE, LATENCY, MADE, failing, healthy, made, of

from meshwright.diagnose.causes import causes
from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.causes.rule import CauseRule, all_causes, has_evidence
from meshwright.diagnose.diagnosis import CLASSES
from meshwright.diagnose.split.facts import FACTS
from meshwright.plan.job import Loading, Runtime, Workload
from meshwright.plan.words import FIELDS, read_word

RULES = all_causes()
KINDS = {
    "DAT": CLASSES[1],
    "MOD": CLASSES[0],
    "CMP": CLASSES[2],
    "COM": CLASSES[3],
    "HST": CLASSES[4],
}


def codes(found) -> set[str]:
    return {c.code for c in found}


def test_there_are_more_than_forty_in_every_class() -> None:
    assert len(RULES) > 40
    assert {r.kind for r in RULES} == set(CLASSES)
    assert len({r.code for r in RULES}) == len({r.title for r in RULES}) == len(RULES)


def test_every_cause_has_one_pair_of_examples() -> None:
    assert set(MADE) | set(BUILT) == {r.code for r in RULES}
    assert not set(MADE) & set(BUILT)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_a_cause_has_a_page(rule: CauseRule) -> None:
    assert rule.kind == KINDS[rule.code[:3]]
    assert rule.summary.endswith(".")
    assert len(rule.summary) > 30
    assert "Shown by:" in rule.doc
    assert "Do:" in rule.doc or "To go faster:" in rule.doc
    assert rule.source
    assert rule.code not in (*rule.said_by, *rule.same_as)
    assert {r.code for r in RULES} >= {*rule.said_by, *rule.same_as}


@pytest.mark.parametrize("code", [r.code for r in RULES])
def test_a_cause_is_named_where_it_is_planted(code: str) -> None:
    found = causes(failing(code))
    assert code in codes(found)
    cause = next(c for c in found if c.code == code)
    assert cause.message.endswith(".")
    assert cause.evidence
    assert all(p.text for p in cause.evidence)
    assert cause.lever.text
    assert cause.confidence in ("high", "medium", "low")
    if cause.lost_us:
        assert cause.lever.gain_s is not None
        assert cause.lever.basis


@pytest.mark.parametrize("code", [r.code for r in RULES])
def test_a_cause_is_not_named_where_it_is_not_planted(code: str) -> None:
    assert code not in codes(causes(healthy(code)))


@pytest.mark.parametrize("code", [r.code for r in RULES])
def test_what_is_lost_is_told_once(code: str) -> None:
    evidence = failing(code)
    case = case_of(evidence)
    found = causes(evidence)
    assert sum(c.lost_us for c in found) <= case.step_us * (1 + 1e-9)
    assert all(c.lost_us >= 0 for c in found)
    assert all(0 <= c.share <= 1 for c in found)


@pytest.mark.parametrize("code", [r.code for r in RULES])
def test_changes_are_those_of_a_plan(code: str) -> None:
    for cause in causes(failing(code)):
        for key, value in cause.lever.changes.items():
            if key in FIELDS:
                assert read_word(key, value)[1] is None
                continue
            section, _, name = key.rpartition(".")
            noun = {"workload.loading": Loading, "workload.runtime": Runtime, "workload": Workload}[
                section
            ]
            assert name in noun.__slots__


def test_a_healthy_run_has_no_cause_that_costs_time() -> None:
    for evidence in (made(), made(dp=4), made(tp=4)):
        assert not [
            c
            for c in causes(evidence)
            if c.lost_us > 0.1 * case_of(evidence).step_us and not c.code.startswith("COM901")
        ]


def test_a_rule_without_its_evidence_is_not_asked() -> None:
    case = case_of(made())
    missing = {"pipeline", "metrics", "memory", "nccl", "job", "across"}
    asked = [r for r in RULES if has_evidence(r, case)]
    assert not [r.code for r in asked if missing.intersection(r.needs)]
    assert len(asked) > 30


def test_facts_that_rules_read_are_named_ones() -> None:
    import inspect

    import meshwright.diagnose.causes.case as case_module
    from meshwright.base.pattern import pattern

    sources = {inspect.getsourcefile(r.condition) for r in RULES}
    wanted = pattern(r'(?:fact_us|calls_a_step|largest)\(\s*case,\s*"(\w+)"')
    for path in sources:
        with open(path, encoding="utf-8") as text:
            used = set(wanted.findall(text.read()))
        assert used <= set(FACTS), path
    assert case_module.fact_us(case_module.case_of(made()), "no_such_fact") is None


@pytest.mark.parametrize(
    ("long_gap_us", "code"), [(0.0, "MOD901"), (8_000.0, "MOD901"), (15_000.0, "HST908")]
)
def test_a_few_long_gaps_are_no_small_kernels(long_gap_us: float, code: str) -> None:
    facts = {"median_kernel_us": 5.0, "long_gap_us": long_gap_us}
    found = codes(causes(of({LATE: 0.2}, facts=facts)))
    assert found & {"MOD901", "HST908"} == {code}


@pytest.mark.parametrize(("part", "said"), [(LATE, "its host"), (LATENCY, "was launched")])
def test_long_gaps_before_and_after_a_launch_differ(part: str, said: str) -> None:
    facts = {"median_kernel_us": 5.0, "long_gap_us": 18_000.0}
    cause = next(c for c in causes(of({part: 0.2}, facts=facts)) if c.code == "HST908")
    assert said in cause.message
