"""Values of the wrong type given to the library: MeshwrightError, never another exception."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshwright import api
from meshwright.base.errors import MeshwrightError
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.plan.words import FIELDS

WRONG = (3, -1, 1.5, math.nan, True, b"x", [], {}, object(), [1], {"a": 1}, np.array([1, 2]))
NO_NUMBER = (None, "x", "", b"x", [], {}, object(), math.nan, True, np.array([1, 2]))


def planned(model="llama-3-8b", gpus="H100:8", **changes):
    given = {"seq_len": 128, "global_batch": 8, "top": 1} | changes
    return api.plan(model, gpus, **given)


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("argument", ["model", "gpus", "objective", "stack", "fabric", "pins"])
def test_wrong_types(argument, value):
    if argument == "pins" and isinstance(value, list | dict) and not value:
        return
    with pytest.raises(MeshwrightError):
        planned(**{argument: value})


@pytest.mark.parametrize("value", NO_NUMBER)
@pytest.mark.parametrize("argument", ["nodes", "seq_len", "global_batch", "top", "train_tokens"])
def test_what_is_no_number(argument, value):
    if argument == "train_tokens" and value is None:
        return
    with pytest.raises(MeshwrightError):
        planned(**{argument: value})


@pytest.mark.parametrize("value", [None, *WRONG])
@pytest.mark.parametrize("verb", [api.load_model, api.cluster, api.predict, api.check])
def test_wrong_nouns(verb, value):
    with pytest.raises(MeshwrightError):
        verb(value)


@pytest.mark.parametrize("value", [-1, "x", math.nan, 10**30, [1], -0.5, np.array([1, 2])])
@pytest.mark.parametrize("field", FIELDS)
def test_plans_of_impossible_values(field, value):
    job = Job(
        model=api.load_model("llama-3-8b"),
        cluster=api.cluster("H100:8"),
        workload=api.workload(seq_len=128, global_batch=8),
        plan=Plan(**{"dp": 8, field: ["x"] if field == "layout" else value}),
    )
    for verb in (api.predict, api.check):
        with pytest.raises(MeshwrightError):
            verb(job)
