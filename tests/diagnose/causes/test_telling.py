"""The diagnosis in a word, in three sentences, and beside the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from built_evidence import (
    across,
    collective,
    evidence,
    job,
    job_of_ranks,
    pipeline,
    rank,
    straggler,
)
from cause_examples import LATE, made, metrics, of

from meshwright.cost.predict import predict
from meshwright.diagnose.causes import causes, principal, promises, summary
from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.causes.levers import changed_job, lever, predicted_gain_s
from meshwright.diagnose.causes.promises import verdict
from meshwright.diagnose.diagnosis import Evidence
from meshwright.diagnose.path.noun import Path


def told(found_in: Evidence) -> tuple[str, str | None]:
    return principal(found_in, causes(found_in))


@pytest.mark.parametrize(
    ("parts", "word", "second"),
    [
        ({"idle_dataloader": 0.3, LATE: 0.2}, "data_processing", "host_launch"),
        ({"idle_dataloader": 0.09}, "compute", None),
        ({LATE: 0.06, "idle_launch_latency": 0.05}, "host_launch", None),
        ({"exposed_memory": 0.2}, "memory_copy", None),
        ({"idle_malloc_free": 0.2}, "malloc", None),
        ({"idle_device_dependency": 0.2}, "device_dependency", None),
        ({"idle_checkpoint": 0.2}, "checkpoint", None),
        ({"idle_tail_after_last_kernel": 0.5}, "compute", None),
    ],
)
def test_the_largest_loss_is_the_principal(parts: dict, word: str, second: str | None) -> None:
    assert told(of(parts)) == (word, second)


def test_preprocessing_is_no_launching() -> None:
    late = of({LATE: 0.5}, facts={"preprocess_us": 48_000, "median_kernel_us": 9.0})
    assert told(late) == ("data_processing", None)


def test_waiting_is_no_communication() -> None:
    late = (straggler("compute", number=2),)
    waits = job_of_ranks(4, wait_us=30_000, stragglers=late, straggler_rank=2)
    assert told(waits) == ("straggler (rank 2)", None)
    sends = job_of_ranks(4, wait_us=100, comm=0.4)
    assert told(sends)[0] == "communication"
    turns = replace(waits, across=replace(waits.across, straggler_rotates=True))
    assert told(turns)[0] == "straggler"


def test_stages_that_wait_are_a_pipeline() -> None:
    assert told(made(pp=4, micro_batches=4, layers=4))[0] in ("pipeline_bubble", "stage_imbalance")
    assert told(made(pp=4, slow_stage=3, micro_batches=8, layers=4))[0] == "stage_imbalance"


def test_a_pipeline_without_a_word_of_its_own_gets_one() -> None:
    slow = {(p, d): 900_000.0 for p in range(4) for d in range(2)} | {(1, 0): 1_500_000.0}
    assert told(Evidence(pipeline=pipeline(slow, idle=50.0)))[0] == "straggler"
    last = {(p, d): 900_000.0 if p == 3 else 450_000.0 for p in range(4) for d in range(2)}
    assert told(Evidence(pipeline=pipeline(last, m=4, idle=60.0))) == (
        "stage_imbalance",
        "pipeline_bubble",
    )
    assert told(Evidence(pipeline=pipeline(m=4, idle=45.0)))[0] == "pipeline_bubble"
    assert told(Evidence(pipeline=pipeline()))[0] == "compute"
    assert told(Evidence(pipeline=pipeline(principal="as said")))[0] == "as said"


def test_metrics_alone_have_a_principal() -> None:
    assert told(metrics(data_wait_share=0.4))[0] == "data_processing"
    assert told(metrics(save_share=0.2))[0] == "checkpoint"


def test_three_sentences() -> None:
    late = of({"idle_dataloader": 0.3}, facts={"loader_in_process_us": 30_000})
    first, second, third = summary(late, causes(late))
    assert first == "A step takes 100 ms; 30.0 ms of it (30%) is lost."
    assert second.startswith("Most of it, 30.0 ms, goes to DAT901:")
    assert third.startswith("Do this: load in worker processes")
    assert third.endswith("worth about 30.0 ms a step (30%).")


def test_ranks_that_cause_it_are_named() -> None:
    late = (straggler("compute", number=2),)
    waits = job_of_ranks(4, wait_us=30_000, stragglers=late, straggler_rank=2)
    assert "CMP905 on rank 2:" in summary(waits, causes(waits))[1]


def test_a_healthy_run_is_told_to_be_so() -> None:
    healthy = of()
    sentences = summary(healthy, causes(healthy))
    assert "bound by its computation" in sentences[1]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"idle_tail_after_last_kernel": 0.9}, "after all work of the device"),
        ({"idle_back_to_back_under_5us": 0.45, "exposed_memory": 0.04, LATE: 0.09}, "many small"),
    ],
)
def test_a_run_that_hardly_computes_is_not_told_to_be_bound_by_it(
    parts: dict[str, float], told: str
) -> None:
    idle = of(parts)
    first, second, _ = summary(idle, ())
    assert f"({sum(parts.values()):.0%}) is not compute" in first
    assert told in second
    assert "bound by" not in second


def test_a_trace_without_steps_counts_as_one() -> None:
    whole = evidence(replace(rank(), cpu_steps=(), device_steps=()))
    assert summary(whole, causes(whole))[0].startswith("No step is marked, so all that was traced")


def test_a_trace_without_a_device_is_told_to_be_unfit() -> None:
    blind = evidence(replace(rank(), attribution=None, gpu_span=None))
    assert told(blind) == ("no_gpu_events", None)
    assert "no device events" in summary(blind, causes(blind))[0]
    assert len(summary(Evidence(), ())) == 1


# Levers


def test_a_gain_is_predicted_from_the_plan() -> None:
    planned = job(recompute=2)  # full
    gain = predicted_gain_s(planned, {"recompute": "none"})
    changed = changed_job(planned, {"recompute": "none"})
    assert changed is not None
    assert gain == pytest.approx(predict(planned).step_time_s - predict(changed).step_time_s)
    step_us = 1e6 * predict(planned).step_time_s
    for longer, factor in ((1.0, 1.0), (1.5, 1.0), (0.01, 0.01)):
        case = case_of(evidence(rank(steps=(longer * step_us,) * 5), job=planned))
        made_lever = lever(case, "less", changes={"recompute": "none"})
        assert made_lever.gain_s == pytest.approx(factor * gain)
        assert made_lever.basis == "predicted from the plan"


def test_no_gain_is_predicted_for_what_the_plan_does_not_know_or_refuses() -> None:
    assert predicted_gain_s(job(), {"workload.loading.num_workers": 8}) is None
    assert predicted_gain_s(job(), {"tp": 3}) is None  # 32 heads
    assert predicted_gain_s(job(), {"recompute": "full"}) is None  # slower
    assert predicted_gain_s(job(), {"recompute": "sometimes"}) is None


def test_a_gain_is_replayed_where_there_is_no_plan() -> None:
    path = Path(
        window_us=5e5, by_kind_us={}, what_if_us={"data_loading": 8e4}, longest=(), step_us=1e5
    )
    case = case_of(of({"idle_dataloader": 0.3}, path=path))
    made_lever = lever(case, "faster", free="data_loading")
    assert made_lever.gain_s == pytest.approx(0.02)
    assert made_lever.basis == "what-if on the critical path"
    replayed = {"as measured": 1e5, "loader kept up": 9e4}
    ranks = tuple(rank(i, world=2, path=path) for i in range(2))
    case = case_of(Evidence(ranks=ranks, across=across(2, what_if_us=replayed)))
    assert lever(case, "faster", free="data_loading").gain_s == pytest.approx(0.01)


def test_what_is_replayed_orders_causes() -> None:
    path = Path(
        window_us=5e5,
        by_kind_us={},
        longest=(),
        step_us=1e5,
        what_if_us={"communication": 9.9e4, "host_launch": 7e4},
    )
    one = of({"exposed_comm": 0.4, LATE: 0.3}, path=path, facts={"median_kernel_us": 9.0}, world=8)
    found = causes(one)
    assert [c.code for c in found] == ["MOD901", "COM906"]
    assert found[0].lost_us < found[1].lost_us
    assert summary(one, found)[1].startswith("The part that gives most back, 30.0 ms, goes to MOD")


# Promises


def test_promises_stand_beside_what_was_measured() -> None:
    planned = job()
    step_us = 1e6 * predict(planned).step_time_s
    busy = rank(
        steps=(step_us,) * 5,
        parts={"exposed_comm": 0.1, "idle_dataloader": 0.08},
        classes={"gemm": 0.6, "attention": 0.1, "elementwise": 0.1},
        collectives=(collective("_allgather_base", axis="dp"),),
        world=8,
    )
    found = {p.term: p for p in promises(evidence(busy, job=planned))}
    terms = predict(planned).terms
    whole = found["time"]
    assert whole.predicted_s == pytest.approx(step_us / 1e6)
    assert whole.measured_s == pytest.approx(whole.predicted_s)
    assert whole.verdict == "as planned"
    products = found["time.compute.matmul + attention + recompute"]
    assert products.predicted_s == pytest.approx(
        sum(terms[f"time.compute.{n}"].value for n in ("matmul", "attention", "recompute"))
    )
    assert products.measured_s == pytest.approx(0.7 * step_us / 1e6)
    assert found["time.communication.dp + fsdp"].measured_s == pytest.approx(0.1 * step_us / 1e6)
    assert found["data loading"].verdict == "not in the plan: 8% of the step"
    assert "time.bubble" not in found


def test_predictions_cover_the_whole_step() -> None:
    planned = job(pp=2, dp=4, micro_batch_size=2)
    found = promises(evidence(job=planned))
    named = sum(p.predicted_s for p in found if p.term != "time")
    terms = predict(planned).terms
    unnamed = sum(terms[n].value for n in ("time.stall", "time.straggler"))
    assert named + unnamed == pytest.approx(terms["time"].value, rel=1e-6)


def test_without_a_plan_nothing_was_promised() -> None:
    assert promises(of()) == ()


@pytest.mark.parametrize(
    ("predicted", "measured", "words"),
    [
        (1.0, None, "not to be seen"),
        (1.0, 1.1, "as planned"),
        (1.0, 1.3, "1.30 times as planned"),
        (1.0, 0.5, "less than planned"),
        (0.0, 0.001, "small"),
        (0.0, 1.0, "not in the plan: 10% of the step"),
        (0.01, 0.02, "differs, by little"),
    ],
)
def test_verdicts(predicted: float, measured: float | None, words: str) -> None:
    assert verdict(predicted, measured, step_s=10.0).startswith(words)


def test_a_plan_for_gpus_predicts_nothing_of_a_run_on_cpus() -> None:
    host = replace(rank(parts={"exposed_comm": 0.2}, world=8), computes_on="host")
    case = case_of(Evidence(ranks=(host,), job=job(recompute=2)))
    assert promises(case.evidence) == ()
    assert lever(case, "less", changes={"recompute": "none"}).gain_s is None


def test_the_only_axis_of_a_plan_is_that_of_groups_without_a_name() -> None:
    found_in = evidence(
        rank(parts={"exposed_comm": 0.2}, world=8, collectives=(collective("allreduce"),)),
        job=job(),
    )
    found = [c.code for c in causes(found_in)]
    assert "COM908" in found
    assert "COM906" not in found
