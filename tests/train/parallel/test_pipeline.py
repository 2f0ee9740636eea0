"""Which stages a rank holds, and our tables in torch's words."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.model.catalogue import load
from meshwright.plan.plan import Plan, Schedule

pytest.importorskip("torch")

SPLIT = (Schedule.ZB_H1, Schedule.ZB_H2, Schedule.ZB_V, Schedule.V_HALF, Schedule.DUALPIPE_V)


@pytest.mark.parametrize("schedule", [s for s in Schedule if s != Schedule.DUALPIPE])
@pytest.mark.parametrize("pp", [2, 4])
def test_every_stage_is_held_once_and_runs_every_microbatch(schedule: Schedule, pp: int) -> None:
    from meshwright.train.parallel.pipeline import places_of, table_of

    plan, model = Plan(pp=pp, schedule=int(schedule)), load("llama-3.1-8b")
    held = [places_of(model, plan, pp_rank=rank) for rank in range(pp)]
    places = sorted((p for rank in held for p in rank), key=lambda place: place.index)
    assert [p.index for p in places] == list(range(places[0].stages))
    assert places[0].first_layer == 0
    assert places[-1].last_layer == model.num_hidden_layers
    assert all(a.last_layer == b.first_layer for a, b in pairwise(places))

    micro = 2 * pp
    table = table_of(plan, microbatches=micro)
    for rank, row in enumerate(table):
        counts = Counter((stage, kind) for stage, kind, _ in row)
        for place in held[rank]:
            done = {kind: counts[place.index, kind] for kind in "FIWB"}
            assert done["F"] == done["I"] + done["B"] == done["W"] + done["B"] == micro
            assert (done["W"] > 0) == (schedule in SPLIT)
        assert {stage for stage, _ in counts} == {place.index for place in held[rank]}


def test_dualpipe_is_refused_with_its_one_copy_form() -> None:
    from meshwright.train.parallel.pipeline import table_of

    with pytest.raises(MeshwrightError, match="twice") as refused:
        table_of(Plan(pp=2, schedule=int(Schedule.DUALPIPE)), microbatches=4)
    assert "dualpipe-v" in refused.value.hint


def test_interleaved_stages_go_round() -> None:
    from meshwright.train.parallel.pipeline import places_of

    model = load("llama-3.1-8b")
    places = places_of(model, Plan(pp=4, vpp=2), pp_rank=1)
    assert [(p.index, p.first_layer, p.last_layer) for p in places] == [(1, 4, 8), (5, 20, 24)]
