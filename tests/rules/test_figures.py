"""Figures follow from what a configuration states, and are absent where it does not."""

from __future__ import annotations

from typing import Any

import pytest
from plain_readings import reading

from meshwright import api
from meshwright.frameworks.jobs import draft
from meshwright.rules.figures import figures, padded_vocabulary, sequence_divisor

GIB = 2.0**30


def _figures(gpus: str | None = None, model: str | None = None, **values: Any) -> dict[str, Any]:
    read = reading(**values)
    cluster = api.cluster(gpus, nodes=values.get("num_nodes", 1)) if gpus else None
    drafted = draft(read, model=model and api.load_model(model), cluster=cluster)
    return dict(figures(read, drafted))


def test_replicas_are_what_the_gpus_leave() -> None:
    found = _figures("H100:8", tp=2, pp=2, micro_batch_size=1, global_batch_size=16)
    assert (found["dp"], found["accumulation_steps"], found["num_gpus"]) == (2, 8, 8)
    assert found["samples_per_iteration"] == 16


def test_nothing_is_said_of_replicas_without_gpus() -> None:
    found = _figures(tp=2, pp=2, micro_batch_size=1)
    assert "dp" not in found
    assert "num_gpus" not in found
    assert "step_time_s" not in found
    assert found["least_gpus"] == 4


def test_degrees_multiply_where_data_parallelism_is_stated() -> None:
    assert _figures(dp_shard=8, cp=8, tp=1)["mesh_product"] == 64
    assert "mesh_product" not in _figures(cp=8, tp=1)


def test_experts_have_a_mesh_of_their_own() -> None:
    found = _figures("H100:8", tp=2, pp=2, ep=8, etp=1, num_experts=64)
    assert (found["expert_model_gpus"], found["max_ep"], found["least_gpus"]) == (16, 4, 16)
    assert found["experts_per_rank"] == 8
    assert "expert_dp" not in found


@pytest.mark.parametrize(
    ("cp", "tp", "divisor"), [(2, 4, 8), (4, 2, 8), (1, 8, 8), (2, 1, 4), (2, 3, 12)]
)
def test_a_sequence_divides_by_both_cuts(cp: int, tp: int, divisor: int) -> None:
    drafted = draft(reading(cp=cp, tp=tp, sequence_parallel=True))
    assert sequence_divisor(drafted.job) == divisor


def test_a_quantized_block_multiplies_the_cut() -> None:
    assert _figures(tp=4, sequence_parallel=True, fp8_recipe="mxfp8")["sequence_divisor"] == 128


def test_vocabulary_is_padded_by_tensor_parallelism() -> None:
    assert padded_vocabulary(32002, 128, 2) == 32256
    found = _figures(vocab_size=50257, make_vocab_size_divisible_by=1, tp=2)
    assert (found["padded_vocab_size"], found["padded_vocab_size_tp1"]) == (50258, 50257)


def test_prompts_and_samples_are_told_apart() -> None:
    found = _figures(
        "H100:8",
        rollout_batch_size=1024,
        mini_batch_size=256,
        rollout_n=5,
        micro_batch_size=80,
    )
    assert found["updates_per_step"] == 4
    assert found["accumulation_steps"] == 2
    assert found["samples_per_step"] == 5120


def test_layers_that_chunks_leave_out() -> None:
    found = _figures(num_hidden_layers=40, pp=8, num_layers_per_virtual_stage=2)
    assert (found["layers_built"], found["num_layers"]) == (32, 40)


def test_bytes_of_a_parameter_fall_with_sharding() -> None:
    found = _figures("H100:8", zero_stage=1, tp=1)
    assert found["bytes_per_parameter_unsharded"] == 18
    assert found["bytes_per_parameter"] == pytest.approx(6 + 12 / 8)


def test_costs_need_model_gpus_and_a_length() -> None:
    known = {"zero_stage": 1, "tp": 1, "micro_batch_size": 1, "seq_len": 8192}
    found = _figures("H100:8", "llama-3-8b", global_batch_size=64, recompute="full", **known)
    assert found["logits_fp32_bytes"] == 8192 * 128256 * 4
    assert found["checkpoint_bytes"] == pytest.approx(14 * 8.03e9, rel=0.01)
    assert found["memory.peak_bytes"] > found["memory.load_bytes"] > 0
    assert found["fits"] in ("yes", "tight")
    assert 0 < found["step_time_s"] < 60
    shares = sum(v for n, v in found.items() if n.startswith("share."))
    assert 0.9 < shares <= 1.0001
    without = _figures("H100:8", "llama-3-8b", zero_stage=1)
    assert "logits_fp32_bytes" not in without


def test_more_gpus_are_tried() -> None:
    found = _figures(
        "A100-80GB:2",
        "llama-2-13b",
        zero_stage=3,
        seq_len=512,
        micro_batch_size=1,
        global_batch_size=2,
        grad_bytes=2,
    )
    assert found["fits_on_2_gpus"] == "no"
    assert found["fits_on_4_gpus"] != "no"
    assert found["least_gpus_that_fit"] >= 4


def test_a_plan_that_cannot_be_laid_has_no_costs() -> None:
    found = _figures("H100:8", "llama-3-8b", tp=16, seq_len=4096, global_batch_size=16)
    assert "memory.peak_bytes" not in found
    assert found["parameters"] == pytest.approx(8.03e9, rel=0.01)
