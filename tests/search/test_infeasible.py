"""When nothing is legal or nothing fits: which rule, what to relax, how many GPUs."""

import pytest

import meshwright
from meshwright.api import refused_pins
from meshwright.search import planner as planner_module

ON = {"nodes": 1, "seq_len": 4096, "global_batch": 64}


def plan(model="llama-3-8b", gpus="H100:8", **asked):
    return meshwright.plan(model, gpus, **{**ON, **asked})


@pytest.mark.parametrize(
    ("pins", "code", "hint"),
    [
        ({"tp": 3}, "MOD101", "tp = 2 or 4"),
        ({"micro_batch_size": 7}, "DAT106", "micro_batch_size = 2, 4 or 8"),
        ({"vpp": 3, "pp": 1}, "MOD115", "vpp = 1"),
        ({"schedule": "zb-v", "vpp": 4}, "MOD132", "vpp = 2"),
        (
            {"tp": 8, "overlap_tp": True, "sequence_parallel": False},
            "MOD301",
            "sequence_parallel = True",
        ),
    ],
)
def test_illegal_pins_name_the_rule_and_legal_values(pins, code, hint):
    found = plan(pins=pins)
    assert not found.rows
    assert found.costed == 0
    findings = {f.code: f for f in (*refused_pins(found, pins), *found.refusals)}
    assert code in findings
    assert hint in findings[code].hint
    assert any(relaxation.admits for relaxation in found.relaxations)


def test_one_pin_to_relax_is_named_with_what_it_admits():
    found = plan("llama-3.1-70b", nodes=4, pins={"zero_stage": 1, "tp": 1, "pp": 1, "cp": 1})
    assert not found.rows
    names = [relaxation.constraint for relaxation in found.relaxations]
    assert "pin tp" in names
    assert all(" and " not in name for name in names)
    best = max(found.relaxations, key=lambda r: r.admits)
    assert found.relaxations[0] == best
    freed = {"zero_stage": 1, "pp": 1, "cp": 1}
    assert plan("llama-3.1-70b", nodes=4, pins=freed).feasible == next(
        r.admits for r in found.relaxations if r.constraint == "pin tp"
    )


def test_two_pins_to_relax_when_one_is_not_enough():
    found = plan(pins={"tp": 3, "micro_batch_size": 7})
    assert [r.constraint for r in found.relaxations] == ["pin tp and the pin micro_batch_size"]


def test_all_pins_to_relax_when_two_are_not_enough():
    found = plan(pins={"tp": 3, "micro_batch_size": 7, "cp": 5})
    assert len(found.relaxations) == 1
    assert found.relaxations[0].constraint.count("pin") == 3


def test_what_does_not_fit_says_how_far_off_and_how_many_gpus_would_do():
    found = plan("llama-3.1-405b")
    assert not found.rows
    assert found.refusals == ()
    assert found.misses[0].over_bytes == min(m.over_bytes for m in found.misses) > 0
    assert f"{found.misses[0].over_bytes / 2**30:.1f} GiB more" in found.misses[0].remedy
    assert found.minimum_gpus > 8
    assert plan("llama-3.1-405b", nodes=found.minimum_gpus // 8).rows
    assert not plan("llama-3.1-405b", nodes=found.minimum_gpus // 16).rows


def test_a_remedy_that_was_pinned_away_is_named():
    pins = {"zero_stage": 1, "tp": 1, "pp": 1, "cp": 1, "offload_optimizer": 0}
    found = plan("llama-2-13b", nodes=1, pins=pins)
    assert not found.rows
    assert "zero_stage = 3" in " ".join(miss.remedy for miss in found.misses)


def test_more_gpus_are_no_answer_where_a_rule_is_in_the_way():
    assert plan(pins={"tp": 3}).minimum_gpus is None


def test_banning_every_value_leaves_nothing_to_refuse():
    found = plan(bans={"precision": ["bf16"]})
    assert (found.candidates, found.rows, found.refusals) == (0, (), ())
    assert [r.constraint for r in found.relaxations] == ["ban on precision"]


def test_an_interrupt_leaves_out_the_explanation_alone(monkeypatch):
    def stop(*_positional, **_named):
        raise KeyboardInterrupt

    monkeypatch.setattr(planner_module, "relaxations", stop)
    found = plan(pins={"tp": 3})
    assert found.notes == ("stopped early: the explanation is left out",)
    assert found.rejected["MOD101"] == found.candidates > 0
