"""How far a plan is from the best under its pins."""

from __future__ import annotations

from dataclasses import replace

from meshwright import api
from meshwright.api.checking import Given, cluster_of
from meshwright.api.comparing import distance
from meshwright.cost.predict import predict
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.plan.file import write_job
from meshwright.plan.job import Job, Workload
from meshwright.plan.plan import Plan


def found(plan):
    job = Job(
        model=api.load_model("llama-3.2-1b"),
        cluster=api.cluster("H100:8"),
        workload=Workload(seq_len=4096, global_batch_size=64),
        plan=plan,
    )
    reading = read_text(write_job(job), file="plan.toml")
    drafted = draft(reading, cluster=cluster_of(reading, Given()))
    return distance(reading, drafted, own=predict(drafted.job))


def test_a_slow_plan_is_told_how_much_faster_the_best_is():
    (note,) = found(Plan(tp=8, dp=1, micro_batch_size=1, recompute=2))
    assert note.code == "CFG202"
    assert "slower than" in note.message
    assert note.hint


def test_the_best_plan_is_near_itself():
    (slow,) = found(Plan(tp=8, dp=1, recompute=2))
    words = dict(part.split("=") for part in slow.hint.split())
    plan = Plan(tp=8, dp=1, recompute=2)
    changes = {k: int(v) for k, v in words.items() if v.isdigit()}
    best = replace(plan, **changes, recompute=0 if words.get("recompute") == "none" else 2)
    (note,) = found(best)
    assert note.message.startswith("within")
