"""Operation lists: complete, in legal order, and the ones published."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from schedule_cases import KINDS, Pipeline, pipelines

from meshwright.base.errors import MeshwrightError
from meshwright.cost.schedules import Kind, definitions, describe, operations
from meshwright.plan.plan import Schedule

LETTER = {Kind.FORWARD: "F", Kind.BACKWARD: "I", Kind.WEIGHT: "W", Kind.FULL_BACKWARD: "B"}


def words(ops, *, chunks=False):
    """F0 B0 ..., with the chunk before the kind where asked."""
    return " ".join(f"{op.chunk if chunks else ''}{LETTER[op.kind]}{op.microbatch}" for op in ops)


def expected_passes(pipeline):
    """(micro-batch, chunk) that each rank computes."""
    if pipeline.schedule != Schedule.DUALPIPE:
        microbatches = range(pipeline.num_microbatches)
        return {(m, c) for m in microbatches for c in range(pipeline.chunks)}
    down = (pipeline.num_microbatches + 1) // 2
    return {(m, int(m >= down)) for m in range(pipeline.num_microbatches)}


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_every_pass_once_forward_then_backward_then_weight(pipeline):
    for ops in pipeline.operations():
        place = {(op.kind, op.microbatch, op.chunk): i for i, op in enumerate(ops)}
        assert len(place) == len(ops)
        for key in expected_passes(pipeline):
            forward = place.pop((Kind.FORWARD, *key))
            if (Kind.FULL_BACKWARD, *key) in place:
                assert forward < place.pop((Kind.FULL_BACKWARD, *key))
            else:
                backward, weight = (place.pop((k, *key)) for k in (Kind.BACKWARD, Kind.WEIGHT))
                assert forward < backward < weight
        assert not place


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_no_rank_waits_for_ever(pipeline):
    timeline = pipeline.run(pipeline.seconds())
    assert timeline.makespan_s >= 3 * pipeline.num_microbatches * (1 - 1e-9)
    assert [len(s) for s in timeline.start_s] == [len(o) for o in pipeline.operations()]


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_joined_operations_are_a_forward_and_a_backward(pipeline):
    for ops in pipeline.operations():
        for i, op in enumerate(ops):
            if op.joined:
                assert op.kind == Kind.FORWARD
                assert ops[i + 1].kind == Kind.FULL_BACKWARD
                assert not ops[i + 1].joined
                assert ops[i + 1].chunk != op.chunk


def test_one_f_one_b_of_four_ranks():
    lists = operations(Schedule.ONE_F_ONE_B, pp=4, num_microbatches=5)
    assert words(lists[0]) == "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4"
    assert words(lists[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"


def test_one_f_one_b_with_fewer_microbatches_than_ranks():
    lists = operations(Schedule.ONE_F_ONE_B, pp=4, num_microbatches=2)
    assert words(lists[0]) == "F0 F1 B0 B1"


def test_interleaved_warmup_is_megatrons():
    # Megatron-Core 0.19: 2 (pp - rank - 1) + (vpp - 1) pp forwards before the first pair
    for rank, ops in enumerate(operations(Schedule.ONE_F_ONE_B, pp=4, vpp=2, num_microbatches=8)):
        first = next(i for i, op in enumerate(ops) if op.kind == Kind.FULL_BACKWARD)
        assert first == 2 * (4 - rank - 1) + 4 + 1


def test_interleaved_goes_round_in_groups_of_pp():
    ops = operations(Schedule.ONE_F_ONE_B, pp=2, vpp=2, num_microbatches=4)[1]
    forwards = [op for op in ops if op.kind == Kind.FORWARD]
    assert words(forwards, chunks=True) == "0F0 0F1 1F0 1F1 0F2 0F3 1F2 1F3"


def test_zb_h1_holds_back_weight_gradients_as_in_the_paper():
    # arXiv 2401.10241 figure 3, top: the last of four ranks starts W three passes late
    lists = operations(Schedule.ZB_H1, pp=4, num_microbatches=8)
    assert words(lists[3]).startswith("F0 I0 F1 I1 F2 I2 F3 I3 W0")
    assert words(lists[0]).startswith("F0 F1 F2 F3 I0 W0 F4 I1 W1")


def test_dualpipe_phases_of_eight_ranks_and_twenty_microbatches():
    # the published example (deepseek-ai/DualPipe README): rank 0 and rank 3
    lists = operations(Schedule.DUALPIPE, pp=8, num_microbatches=20)
    assert words(lists[0][:7], chunks=True) == "0F0 0F1 0F2 0F3 0F4 0F5 0F6"
    assert words(lists[3][:8], chunks=True) == "0F0 1F10 0F1 1F11 0F2 1F12 0F3 1F13"
    assert Counter(op.kind for op in lists[0])[Kind.FORWARD] == 20
    assert [op.joined for op in lists[3][8:11]] == [False, False, True]


def test_dualpipe_lower_half_mirrors_the_upper():
    lists = operations(Schedule.DUALPIPE, pp=6, num_microbatches=12)
    for upper, lower in zip(lists[:3], reversed(lists[3:]), strict=True):
        assert [(op.kind, op.chunk) for op in upper] == [(op.kind, 1 - op.chunk) for op in lower]


@pytest.mark.parametrize("sizes", [{"pp": 0}, {"vpp": 0}, {"num_microbatches": 0}, {"pp": -2}])
def test_sizes_below_one_are_refused(sizes):
    with pytest.raises(MeshwrightError, match="at least 1"):
        operations(Schedule.GPIPE, **({"pp": 2, "vpp": 1, "num_microbatches": 2} | sizes))


def test_dualpipe_on_an_odd_number_of_ranks_is_refused():
    with pytest.raises(MeshwrightError, match="even number"):
        operations(Schedule.DUALPIPE, pp=3, num_microbatches=6)


def test_every_schedule_of_the_enumeration_is_defined_once():
    names = [d.name for d in definitions()]
    assert len(set(names)) == len(names) == len(Schedule) + 1
    assert {d.schedule for d in definitions()} == set(Schedule)
    assert {d.name for s, v in KINDS for d in [Pipeline(s, 2, v, 2).definition]} == set(names)


def test_the_page_on_schedules_shows_what_the_code_says():
    page = (Path(__file__).parents[3] / "docs/concepts/schedules.md").read_text(encoding="utf-8")
    for row in describe():
        shown = [row[k] for k in ("name", "bubble", "memory", "constraints", "exactness")]
        assert f"| {' | '.join(shown)} |" in page
        assert f"- **{row['name']}**: {row['paper']}" in page
