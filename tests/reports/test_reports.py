"""Reports of real users: the product gives the answer that the report ended with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import given as facts
import judging
import pytest
import run
from answer import CRASH, Answer
from hypothesis import given as property_of
from hypothesis import settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
CASES = run.cases_in(HERE / "cases")
LEAST_RIGHT = 0.9


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    return [run.result_of(case) for case in CASES]


def test_cases_are_whole() -> None:
    assert len(CASES) >= 59
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert {case["expected"]["verdict"] for case in CASES} <= set(judging.VERDICTS)


def test_reports_end_as_they_ended(results: list[dict[str, Any]]) -> None:
    missed = {r["id"]: r["why"] for r in results if not r["ok"]}
    assert len(missed) <= (1 - LEAST_RIGHT) * len(results), missed


def test_no_case_crashes(results: list[dict[str, Any]]) -> None:
    crashed = {r["id"]: r["why"] for r in results if CRASH in r["why"]}
    assert crashed == {}


def test_plans_that_ran_are_not_refused(results: list[dict[str, Any]]) -> None:
    ran = [r for r in results if r["expected"]["verdict"] in ("ok", "fits", "warn")]
    assert ran
    assert {r["id"]: r["got"]["errors"] for r in ran if r["got"].get("errors")} == {}


def test_results_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    only = str(CASES[0]["id"])
    run.main([str(HERE / "cases"), "--json", "--only", only])
    (record,) = json.loads(capsys.readouterr().out)
    assert {"id", "kind", "expected", "got", "ok", "why"} <= set(record)
    assert record["id"] == only


# What is taken from the facts


@pytest.mark.parametrize(
    ("hardware", "count", "expected"),
    [
        ("A100 80GB, 2 nodes", 16, ("A100-80G-SXM", 16, 8)),
        ("8 x A100 PCIe per node", 8, ("A100-80G-PCIe", 8, 8)),
        ("RTX 3090 24GB, PCIe", 4, ("RTX-3090", 4, 4)),
        ("GH200 96GB, 4 per node", 256, ("GH200-96G", 256, 4)),
        ("A800-SXM4-80GB, 2 nodes, 10 GbE", "2 nodes x 8", ("A800-80G-SXM", 16, 8)),
        ("H200 141GB", 8, ("H200-141G-SXM", 8, 8)),
        ("8 GPUs, at most 80 GB each", 8, ("A100-80G-SXM", 8, 8)),
    ],
)
def test_hardware_is_read_from_text(hardware: str, count: Any, expected: Any) -> None:
    built = facts.gpus_of(hardware, count)
    assert not isinstance(built, str | None)
    assert (built.gpu.name, built.num_gpus, built.gpus_per_node) == expected


def test_networks_hosts_and_disks_are_read_too() -> None:
    slow = facts.gpus_of("A100 80GB, 2 nodes, 10 GbE between nodes", 16)
    assert not isinstance(slow, str | None)
    assert slow.links[-1].kind == "ethernet"
    small = facts.gpus_of("8 x A100 40GB, 600 GB host RAM", 8)
    assert not isinstance(small, str | None)
    assert small.host.memory_bytes == 6e11
    disk = facts.gpus_of("H100 80GB, local disk 2.2 GB/s", 8)
    assert not isinstance(disk, str | None)
    assert disk.host.storage_bytes_per_s == pytest.approx(2.2e9)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (8, 8),
        ("8 (assumed)", 8),
        (">=16", None),
        ("32 -> 128", None),
        ("1 vs 2", None),
        (None, None),
    ],
)
def test_only_exact_counts_are_counts(count: Any, expected: int | None) -> None:
    assert facts.counts_of("A100 80GB", count)[0] == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("Llama-3-8B (8.03e9 params), LoRA", "llama-3-8b"),
        ({"name": "Qwen2-VL-72B", "layers": 80, "hidden": 8192, "params_b": 73.4}, "qwen2-72b"),
        ("Qwen3-235B-A22B (235e9 params)", "qwen3-235b-a22b"),
        ("any even layer count", None),
        (None, None),
    ],
)
def test_models_are_known_by_name(stated: Any, expected: str | None) -> None:
    assert facts.model_of(stated) == expected


def test_dimensions_make_a_configuration_of_the_stated_size(tmp_path: Path) -> None:
    from meshwright.model.catalogue import load
    from meshwright.model.count import parameters

    stated = {"name": "Odd 9B", "layers": 36, "hidden": 4096, "heads": 32, "params_b": 9.1}
    path = facts.model_argument(facts.model_of(stated), tmp_path)
    assert path is not None
    assert parameters(load(path)).total == pytest.approx(9.1e9, rel=0.02)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("core 0.12", "megatron-core 0.12"),
        ("0.12.1", "megatron-lm 0.12.1"),
        ("April 2025", "megatron-core 0.11"),
        ("before the June 2024 p2p fix", "megatron-core 0.6"),
        ("4.0, PyTorch 2.6", "torch 2.6, megatron-lm 4.0"),
        ("", ""),
    ],
)
def test_versions_name_what_they_are_of(text: str, expected: str) -> None:
    assert facts.version_of(text, ("megatron-lm",)) == expected


@settings(max_examples=60, deadline=None)
@property_of(text=st.text(max_size=80), count=st.one_of(st.none(), st.integers(1, 4096), st.text()))
def test_any_facts_are_read_without_a_fault(text: str, count: Any) -> None:
    facts.counts_of(text, count)
    facts.device_of(text)
    facts.version_of(text, ())
    facts.dimensions_in(text)


# How answers are judged


def _finding(severity: str, message: str, code: str = "MOD101") -> dict[str, Any]:
    return {"severity": severity, "message": message, "code": code}


def _judged(expected: dict[str, Any], *findings: dict[str, Any], **figures: Any) -> bool:
    return judging.judge(expected, Answer(findings=findings, figures=figures)).ok


def test_a_verdict_needs_the_right_reason() -> None:
    expected = {"verdict": "error", "rule": "num_layers % pp == 0"}
    assert _judged(expected, _finding("error", "46 layers do not divide by pp = 4"))
    assert not _judged(expected, _finding("error", "vocabulary is not padded"))
    assert not _judged(expected, _finding("warning", "46 layers do not divide by pp = 4"))
    assert not _judged(expected)


def test_a_loud_warning_counts_where_the_result_is_silently_wrong() -> None:
    expected = {"verdict": "silent_wrong", "rule": "num_layers % pp == 0"}
    loud = _finding("warning", "46 layers over pp = 4: two layers are silently dropped")
    assert _judged(expected, loud)
    assert not _judged(expected, _finding("warning", "46 layers over pp = 4 idle a little"))


def test_an_error_refuses_what_runs() -> None:
    for verdict in ("ok", "fits", "warn"):
        assert not _judged({"verdict": verdict}, _finding("error", "tp 3"))
    assert _judged({"verdict": "ok"}, _finding("warning", "tp 3"))


def test_numbers_must_be_met() -> None:
    expected = {"verdict": "info", "dp": 2}
    assert _judged(expected, dp=2)
    assert not _judged(expected, dp=4)
    assert not _judged(expected)


def test_a_lower_bound_and_a_tolerance() -> None:
    expected = {"verdict": "oom", "fits": False, "predicted_peak_gib_at_least": 24}
    short = _finding("error", "out of memory", "CMP121")
    figures = {"fits": "no", "memory.most_bytes": 25 * 2**30}
    assert _judged(expected, short, **figures)
    assert not _judged(expected, short, **{**figures, "memory.most_bytes": 20 * 2**30})
    slow = {"verdict": "slow", "bottleneck": "pipeline_bubble", "predicted_s_per_iter": 10}
    bubble = _finding("warning", "the pipeline bubble takes 40% of the step")
    assert not _judged(slow, bubble, step_time_s=13.0)
    assert _judged({**slow, "tolerance": 0.4}, bubble, step_time_s=13.0)


def test_numbers_of_the_wrong_estimate_are_not_asked_for() -> None:
    expected = {"verdict": "estimate_wrong", "tool_gib": 0.49, "observed_after_init_gib": 14.3}
    assert judging.not_compared(expected) == ["tool_gib", "observed_after_init_gib"]
    assert judging.not_compared({**expected, "tolerance": 0.1}) == ["tool_gib"]


def test_a_number_is_found_by_the_words_of_its_name() -> None:
    figures = {"weights_bytes": 2.0**31, "share.bubble": 0.25, "memory.weights_of_stage_bytes": 1.0}
    assert judging.by_words("weights_gib", figures).figures == ("weights_bytes",)
    assert _judged({"verdict": "info", "weights_gib": 2.0}, **figures)
    assert _judged({"verdict": "info", "bubble_pct": 25}, **figures)
    assert not _judged({"verdict": "info", "activations_gib": 2.0}, **figures)


def test_a_count_or_a_ratio_may_stand_in_words() -> None:
    counted = {"verdict": "error", "rule": "values differ in batch", "count_mismatches": 4}
    assert _judged(counted, _finding("error", "4 values differ, of the batch"))
    assert not _judged(counted, _finding("error", "14 values differ, of the batch"))
    ratio = {"verdict": "silent_wrong", "ratio": 2.0, "tolerance": 0.03}
    assert _judged(ratio, _finding("error", "losses are 2.0 times too large"))
    assert not _judged(ratio, _finding("error", "losses are 3.0 times too large"))


def test_whether_it_fits_is_asked_by_degree() -> None:
    expected = {"verdict": "ok", "fits_by_ep": {2: False, 8: True}}
    assert _judged(expected, fits_with_ep_2="no", fits_with_ep_8="yes")
    assert not _judged(expected, fits_with_ep_2="yes", fits_with_ep_8="yes")


def test_a_wrong_bottleneck_is_wrong() -> None:
    expected = {"verdict": "slow", "bottleneck": "inter_node_parameter_allgather"}
    assert _judged(expected, _finding("info", "inter-node all-gather of parameters: 16 GB"))
    assert not _judged(expected, _finding("warning", "the bubble takes 40% of the step"))


def test_a_crash_is_no_answer() -> None:
    answer = Answer(findings=(), figures={}, error=f"{CRASH}: boom")
    assert not judging.judge({"verdict": "ok"}, answer).ok
