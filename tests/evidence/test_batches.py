from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from meshwright.evidence.batches import batches, columns
from meshwright.evidence.row import Inexpressible
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan


def test_fields_that_differ_become_columns() -> None:
    plan = columns([Plan(tp=1, dp=8), Plan(tp=2, dp=4)])
    assert np.asarray(plan.tp).tolist() == [1, 2]
    assert plan.pp == 1
    assert len(plan) == 2


def test_the_rows_of_columns_are_the_plans(jobs) -> None:
    for batch in batches(jobs)[:200]:
        for position, index in enumerate(batch.indices):
            one = jobs[index]
            assert isinstance(one, Job)
            row = batch.job.plan.row(position)
            assert all(getattr(row, f.name) == getattr(one.plan, f.name) for f in fields(Plan))


def test_layouts_do_not_mix() -> None:
    with pytest.raises(ValueError, match="one layout"):
        columns([Plan(pp=2, layout=(3, 1)), Plan(pp=2)])
    with pytest.raises(ValueError, match="one layout"):
        columns([])


def test_every_job_lies_in_one_batch(jobs) -> None:
    found = sorted(i for batch in batches(jobs) for i in batch.indices)
    assert found == [i for i, job in enumerate(jobs) if not isinstance(job, Inexpressible)]


def test_a_batch_shares_all_but_the_plan(jobs) -> None:
    for batch in batches(jobs):
        for index in batch.indices:
            job = jobs[index]
            assert isinstance(job, Job)
            assert (job.model, job.stack) == (batch.job.model, batch.job.stack)
            assert job.workload == batch.job.workload
            assert job.cluster.num_gpus == batch.job.cluster.num_gpus
