"""Runs that were measured did run: no rule that prunes may call them illegal."""

from __future__ import annotations

import numpy as np

from meshwright.evidence.jobs import job_of
from meshwright.evidence.runs import packaged_runs
from meshwright.plan.job import Job
from meshwright.rules.rule import as_numpy, pruning_rules

LEAST = 3000


def test_no_measured_run_is_illegal() -> None:
    built = [job_of(run.row) for run in packaged_runs()]
    jobs = [job for job in built if isinstance(job, Job)]
    assert len(jobs) > LEAST
    for job in map(as_numpy, jobs):
        with np.errstate(all="ignore"):
            refusing = [r.code for r in pruning_rules() if np.all(r.condition(job))]
        assert refusing == [], job.plan
