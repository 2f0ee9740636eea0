"""What the engine refuses or does otherwise is told by field, before torch is imported."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from meshwright import api
from meshwright.base.finding import Severity
from meshwright.plan.job import Job
from meshwright.plan.plan import Optimizer, Plan, Precision, Recompute, Schedule
from meshwright.train.refusals import refusals
from meshwright.train.remarks import remarks

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "engine.md"


def job(model="llama-3-8b", **fields):
    plan = Plan(**({"dp": 8} | fields))
    return Job(
        model=api.load_model(model),
        cluster=api.cluster("H100:8", nodes=1),
        workload=api.workload(seq_len=4096, global_batch=512, train_tokens="1B"),
        plan=plan,
    )


def keys(findings):
    assert all(finding.hint for finding in findings)
    return {finding.key.removeprefix("plan.") for finding in findings}


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"precision": Precision.MXFP8}, "precision"),
        ({"precision": Precision.NVFP4}, "precision"),
        ({"precision": Precision.FP8, "tp": 2, "dp": 4}, "precision"),
        ({"precision": Precision.FP16, "master_weights": False}, "master_weights"),
        ({"base_weight_bits": 4, "lora_rank": 8}, "base_weight_bits"),
        ({"lora_rank": 8, "tp": 2, "dp": 4}, "tp"),
        ({"compile": True, "offload_activations": 0.5}, "compile"),
        ({"offload_activations": 1.5}, "offload_activations"),
        ({"offload_optimizer": 0.5}, "offload_optimizer"),
        ({"vocab_over_pipeline": True, "pp": 2, "dp": 4}, "vocab_over_pipeline"),
        ({"schedule": Schedule.DUALPIPE, "pp": 2, "dp": 4}, "schedule"),
    ],
)
def test_what_cannot_be_done_is_refused(fields, key):
    assert key in keys(refusals(job(**fields)))


@pytest.mark.parametrize(
    ("fields", "package"),
    [
        ({"optimizer": Optimizer.ADAM_8BIT}, "torchao"),
        ({"precision": Precision.FP8}, "torchao"),
        ({"lora_rank": 8}, "peft"),
    ],
)
def test_libraries_that_are_not_there_are_asked_for(fields, package):
    hints = [f.hint for f in refusals(job(**fields))]
    assert any(f"pip install {package}" in hint for hint in hints) == (find_spec(package) is None)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"grad_bytes": 2}, "grad_bytes"),
        ({"master_weights": False, "optimizer_state_bytes": 2}, "grad_bytes"),
        ({"optimizer_state_bytes": 2}, "optimizer_state_bytes"),
        ({"reduce_bytes": 1}, "reduce_bytes"),
        ({"param_bytes": 1}, "param_bytes"),
        ({"padded_vocab_size": 131072}, "padded_vocab_size"),
        ({"fused_loss": True}, "fused_loss"),
        (
            {"recompute": Recompute.FULL, "recompute_uniform": True, "recompute_layers": 4},
            "recompute_uniform",
        ),
        (
            {
                "recompute": Recompute.FULL,
                "distribute_saved": True,
                "tp": 2,
                "dp": 4,
                "sequence_parallel": False,
            },
            "distribute_saved",
        ),
        (
            {"pp": 2, "dp": 4, "schedule": Schedule.ZB_H1, "zero_stage": 3},
            "reshard_after_forward",
        ),
        ({"offload_params": True, "offload_optimizer": 0.5}, "offload_optimizer"),
        ({"flash_attention": False}, "flash_attention"),
        ({"overlap_tp": True}, "overlap_tp"),
        ({"overlap_ep": True}, "overlap_ep"),
        ({"cuda_graph": True}, "cuda_graph"),
        ({"overlap_grad_reduce": False}, "overlap_grad_reduce"),
        ({"overlap_param_gather": False}, "overlap_param_gather"),
        ({"pp": 2, "schedule": Schedule.ZB_H1, "recompute": Recompute.FULL}, "recompute"),
    ],
)
def test_what_is_done_otherwise_is_told(fields, key):
    found = remarks(job(**fields))
    assert keys(found) == {key}
    assert all(finding.severity is Severity.WARNING for finding in found)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"precision": Precision.FP32, "zero_stage": 3},
        {"pp": 2, "schedule": Schedule.ZB_H1},
        {"pp": 2, "recompute": Recompute.FULL},
        {"precision": Precision.FP16},
        {"master_weights": False, "grad_bytes": 2, "optimizer_state_bytes": 2, "reduce_bytes": 2},
        {"offload_params": True, "offload_optimizer": 1.0, "offload_activations": 0.5},
        {"optimizer": Optimizer.MUON, "tp": 2, "dp": 4},
        {"optimizer": Optimizer.ADAFACTOR, "pp": 2, "dp": 4, "zero_stage": 3},
    ],
)
def test_what_is_done_as_the_plan_says_is_not_talked_of(fields):
    assert refusals(job(**fields)) == []
    assert remarks(job(**fields)) == []


def test_experts_without_adapters_are_told_of():
    assert keys(remarks(job("qwen3-30b-a3b", lora_rank=8))) == {"lora_all_linear"}
    assert remarks(job("qwen3-30b-a3b", lora_rank=8, lora_all_linear=False)) == []


def test_the_page_of_the_engine_names_every_field():
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in Plan.__slots__ if f"`{name}`" not in page] == []
