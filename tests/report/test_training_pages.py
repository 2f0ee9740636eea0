"""Pages of `train` and `verify`: how a run ended and what to type next, which plan is exact."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from meshwright.plan.plan import Plan
from meshwright.report.page import plain
from meshwright.report.training import summary_page, summary_record
from meshwright.report.verdicts import MOST_TENSORS, summary_line, verdict_lines, verdict_record
from meshwright.train.telling.summary import Summary
from meshwright.train.verify import TOLERANCE, Verdict
from meshwright.train.verify.shrinking import Trial

SUMMARY = Summary(
    ended="done",
    step=100,
    steps=100,
    steps_here=100,
    resumed_from=0,
    loss=2.5,
    first_loss=9.25,
    evaluation_loss=None,
    tokens=204_800,
    consumed_samples=400,
    epochs=(0.5,),
    world_size=4,
    device="cpu",
    seconds=60.0,
    first_step_s=8.0,
    step_s=0.5,
    tokens_per_s=4096.0,
    mfu=None,
    data_wait_share=0.01,
    memory_bytes=2.0**30,
    predicted_step_s=None,
    predicted_bytes=None,
    updates_left_out=0,
    checkpoints=(50, 100),
    checkpoint_stall_s=0.2,
)
EXACT = Verdict(
    trial=Trial(
        plan=Plan(tp=2, dp=2), layers=2, heads_multiple=2, experts_multiple=1, microbatches=2
    ),
    loss=1e-15,
    gradient=2e-12,
    norm=1e-15,
    parameter=3e-13,
    tensors=21,
    differing=(),
    missing=(),
    seconds=1.5,
)


def shown(**changes) -> str:
    return plain(summary_page(replace(SUMMARY, **changes), out="runs/a"))


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({}, "next: meshwright export runs/a/step-100 -o hf/"),
        ({"ended": "stopped", "step": 60}, "next: the same command with --resume"),
        ({"checkpoints": ()}, "next: the same command without --no-save-last"),
        ({"checkpoints": (), "resumed_from": 100}, "--out runs/a --resume --steps 200"),
    ],
)
def test_what_is_said_to_be_typed_next_can_be_done(changes, hint):
    assert hint in shown(**changes)


def test_profiled_steps_are_diagnosed_next():
    assert "diagnose" not in shown()
    page = plain(summary_page(SUMMARY, out="runs/a", traced=True))
    assert page.endswith("      meshwright diagnose runs/a\n")


@pytest.mark.parametrize(("asked", "words"), [(100, ""), (40, ", more than the 40 asked for")])
def test_a_run_that_was_finished_before_says_so_and_how_to_go_on(asked, words):
    page = shown(steps=asked, steps_here=0, resumed_from=100, loss=None, checkpoints=())
    assert f"finished before: all 100 steps are in runs/a/step-100{words}; nothing" in page
    assert "--steps 200 with --resume goes on" in page
    assert "export runs/a/step-100 -o hf/" in page
    assert "loss" not in page


def test_predictions_stand_beside_what_was_measured_where_there_are_any():
    assert "predicted" not in shown()
    page = shown(predicted_step_s=0.4, predicted_bytes=2.0**31)
    assert "predicted" in page
    assert "2.00 GiB" in page


def test_updates_that_were_left_out_and_missing_losses_are_told():
    assert "3 updates were not finite" in shown(updates_left_out=3)
    assert "loss none" in shown(loss=None, first_loss=None)


def test_a_run_without_a_summary_has_a_record():
    record = summary_record(None, out="runs/a", code=1)
    assert json.loads(json.dumps(record)) == {"code": 1, "out": "runs/a", "summary": None}


def test_an_exact_plan_is_two_lines():
    head, figures = verdict_lines(EXACT)
    assert head.split()[:3] == ["exact", "4", "ranks"]
    assert "21 gradients within 2.0e-12" in figures
    assert summary_line([EXACT], model="tiny").startswith("exact: 1 shrunk plan of tiny")


@pytest.mark.parametrize("quantity", ["loss", "gradient", "norm", "parameter"])
def test_one_quantity_beyond_the_tolerance_is_enough(quantity):
    wrong = replace(EXACT, **{quantity: 2 * TOLERANCE})
    assert not wrong.exact
    assert "DIFFERS" in verdict_lines(wrong)[0]
    assert summary_line([EXACT, wrong], model="tiny").startswith("NOT exact: 1 of 2 shrunk plans")


def test_the_worst_tensors_are_named_and_the_others_counted():
    names = tuple((f"layer.{i}", 1.0 / (i + 1)) for i in range(MOST_TENSORS + 5))
    lines = verdict_lines(replace(EXACT, gradient=1.0, differing=names, missing=("norm.weight",)))
    assert [line.split(":")[0].strip() for line in lines[2 : 2 + MOST_TENSORS]] == [
        name for name, _ in names[:MOST_TENSORS]
    ]
    assert "and 5 more" in lines[-2]
    assert lines[-1].strip() == "norm.weight: no gradient"


def test_a_plan_that_failed_is_told_with_its_reason_and_has_json():
    failed = replace(EXACT, loss=float("inf"), error="rank 1 raised RuntimeError\n  line 2")
    assert [line.strip() for line in verdict_lines(failed)[1:]] == [
        "rank 1 raised RuntimeError",
        "line 2",
    ]
    record = json.loads(json.dumps(verdict_record(failed), allow_nan=False))
    assert (record["exact"], record["loss"]) == (False, None)
