"""Legality without multiplying out: against every rule asked about every plan, one by one."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from spaces import legal_groups, plan_in, search

from meshwright.cost.predict import evaluate
from meshwright.rules.rule import check, pruning_rules
from meshwright.search.legality import levels, redundant_inner, redundant_outer
from meshwright.search.menu import sensible
from meshwright.search.space import length, take

CASES = [
    ("llama-3-8b", {"pins": {"tp": [1, 8], "cp": [1, 4], "micro_batch_size": [1, 16]}}),
    ("mixtral-8x7b", {"pins": {"pp": [1, 4], "cp": 1, "micro_batch_size": [2, 64]}}),
    ("llama-3-8b", {"pins": {"vpp": [1, 3], "tp": [1, 3], "cp": 1}}),
]


def rows_of(table):
    """A table as dictionaries of scalars."""
    return [{n: c[i].item() for n, c in table.items()} for i in range(length(table))]


@pytest.mark.parametrize(("model", "asked"), CASES)
def test_kept_plans_are_those_that_no_rule_refuses(model, asked):
    """Every plan of a small exhaustive space, a random tenth of its options."""
    job, space = search(model, batch=48, exhaustive=True, **asked)
    base = space.settings.base
    legal = {
        plan_in(group, base, place)
        for group in legal_groups(job, space)[1]
        for place in np.ndindex(group.shape)
    }
    fits = sensible(
        space.mesh, space.batch, layers=space.model.num_hidden_layers, settings=space.settings
    )
    rng = np.random.default_rng(0)
    pairs = rng.permutation(np.argwhere(fits))[:60]
    rules = pruning_rules()
    tried = Counter()
    for mesh, batch in pairs:
        row = take(space.mesh, np.array([mesh])) | take(space.batch, np.array([batch]))
        inner = rows_of(take(space.inner, np.flatnonzero(~redundant_inner(space, row)[:, 0])))
        outer = rows_of(take(space.outer, np.flatnonzero(~redundant_outer(job, space, row)[:, 0])))
        options = list(product(inner, outer))
        for place in rng.permutation(len(options))[:6]:
            first, second = options[place]
            plan = base.replace(**rows_of(row)[0], **first, **second)
            refused = bool(check(job.with_plan(plan), rules))
            assert (plan in legal) != refused, plan
            tried[refused] += 1
    assert tried[False]
    assert tried[True]


def test_no_plan_is_there_twice():
    job, space = search("llama-3-8b", exhaustive=True, pins={"micro_batch_size": 1, "cp": 1})
    base = space.settings.base
    plans = [
        plan_in(group, base, place)
        for group in legal_groups(job, space)[1]
        for place in np.ndindex(group.shape)
    ]
    assert len(plans) == len(set(plans)) > 1000


def test_redundant_options_change_no_cost():
    """What is left out as the same plan costs the same as the plan that stands for it."""
    job, space = search("llama-3-8b", exhaustive=True, pins={"micro_batch_size": 1, "cp": 1})
    row = {"tp": 1, "pp": 1, "cp": 1, "dp": 8, "ep": 1, "etp": 1, "micro_batch_size": 1}
    columns = {n: np.array([v]) for n, v in row.items()}
    columns |= {"schedule": np.array([1]), "vpp": np.array([1]), "dp_replicate": np.array([1])}
    left_out = redundant_inner(space, columns)[:, 0]
    assert left_out.any()
    base = space.settings.base.replace(**row)
    costs = [
        (bool(out), evaluate(job.with_plan(base.replace(**options))))
        for out, options in zip(left_out, rows_of(space.inner), strict=True)
    ]
    kept = {(float(c.step_s), float(c.peak_bytes)) for out, c in costs if not out}
    assert {(float(c.step_s), float(c.peak_bytes)) for out, c in costs if out} <= kept


def test_every_pruning_rule_has_a_level():
    _, space = search("mixtral-8x7b", exhaustive=True)
    found = levels(space)
    sorted_in = [*found.mesh, *found.batch, *found.inner, *found.outer, *found.whole]
    assert Counter(r.code for r in sorted_in) == Counter(r.code for r in pruning_rules())
