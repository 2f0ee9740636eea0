"""Snapshots beside predictions."""

import pytest

from meshwright import api
from meshwright.cost.memory import memory
from meshwright.diagnose.causes import summary
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.logs.beside import with_prediction
from meshwright.diagnose.logs.noun import MemorySnapshot
from meshwright.plan.job import Job
from meshwright.plan.plan import Plan
from meshwright.report.diagnosis.logs import memory_blocks
from meshwright.report.page import plain


@pytest.fixture(scope="module")
def job():
    return Job(
        model=api.load_model("llama-3-8b"),
        cluster=api.cluster("H100:8"),
        workload=api.workload(seq_len=4096, global_batch=32),
        plan=Plan(dp=8, zero_stage=3),
    )


def snapshot(**changes):
    given = {
        "file": "snap.json",
        "device": 0,
        "peak_bytes": 8_000,
        "peak_at_us": 1500.0,
        "reserved_bytes": 10_000,
        "by_category": {"activations": 6_000, "data": 2_000},
        "by_site": (("model.py:7 forward", 6_000),),
        "fragmentation": 0.2,
        "retries": 0,
    }
    return MemorySnapshot(**(given | changes))


def test_categories_are_those_of_the_fullest_rank(job):
    told = with_prediction(snapshot(), job).predicted_bytes
    found = memory(job)
    assert told["peak"] == round(float(found.peak_bytes))
    assert told["weights"] == round(float(found.terms[f"memory.stage{found.stage}.weights"]))
    assert all(size > 0 for size in told.values())


def test_the_page_sets_them_side_by_side(job):
    page = plain(memory_blocks(with_prediction(snapshot(), job)))
    assert "predicted" in page
    assert "1.50 ms into the record" in page
    weights = next(line for line in page.splitlines() if line.startswith("weights"))
    assert "GiB" in weights  # predicted, and nothing of it at this peak


def test_without_a_plan_there_is_no_such_column():
    assert "predicted" not in plain(memory_blocks(snapshot()))


def test_a_snapshot_alone_is_told_in_sentences(job):
    held, most, _ = summary(Evidence(memory=(with_prediction(snapshot(), job),)), ())
    assert "Device 0" in held
    assert "are predicted" in held
    assert "activations" in most
    assert "75%" in most
