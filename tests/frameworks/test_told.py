"""What comments tell in words, and what a trainer runs by a file that is not there."""

from __future__ import annotations

import pytest

from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.rules.lint import lint

ZERO = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'


@pytest.mark.parametrize(
    ("comment", "saved", "now"),
    [
        ("# saved: dp 8\n# resume: dp 16", ("saved_dp", 8), ("dp", 16)),
        ("# checkpoint was written by 4 ranks, resumed on 2 ranks", ("saved_num_gpus", 4), 2),
        ("# trained on 32 GPUs", ("saved_num_gpus", 32), None),
        ("# 8 -> 16 GPUs", ("saved_num_gpus", 8), 16),
    ],
)
def test_a_comment_tells_of_the_run_that_saved(
    comment: str, saved: tuple[str, int], now: object
) -> None:
    reading = read_text(f"{comment}\n{ZERO}")
    assert reading.value(saved[0]) == saved[1]
    name, value = now if isinstance(now, tuple) else ("num_gpus", now)
    assert reading.value(name) == value


@pytest.mark.parametrize(
    ("comment", "rank"),
    [
        ("# LoRA adapters, base frozen", 8),
        ("# QLoRA", 8),
        ("# full fine-tuning, no LoRA", None),
        ("# for LoRA use another file", None),
        ("# lora_rank=4 is not used here", None),
    ],
)
def test_a_comment_tells_of_adapters(comment: str, rank: int | None) -> None:
    text = f"distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 2\n{comment}\n"
    assert read_text(text, framework="accelerate").value("lora_rank") == rank


def test_a_deepspeed_file_that_is_not_there_leaves_its_stage_open() -> None:
    reading = read_text(
        "--deepspeed my_settings.json --per_device_train_batch_size 1 --bf16 True",
        framework="hf-trainer",
    )
    drafted = draft(reading)
    assert reading.value("use_deepspeed") is True
    assert "zero_stage" in drafted.missing
    assert (int(drafted.job.plan.zero_stage), int(drafted.other.plan.zero_stage)) == (2, 3)


def test_its_name_may_tell_the_stage() -> None:
    reading = read_text("--deepspeed cfg/my_zero2.json --per_device_train_batch_size 1")
    assert reading.value("zero_stage") == 2


def test_two_engines_are_refused_though_the_file_is_not_there() -> None:
    text = '--deepspeed my_settings.json --fsdp "full_shard" --per_device_train_batch_size 1'
    codes = {f.code for f in lint(read_text(text, framework="hf-trainer")).findings}
    assert "DAT240" in codes


def test_sequences_that_the_framework_pads_are_judged_as_padded() -> None:
    text = (
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=8\n"
        "data.max_prompt_length=1000\ndata.max_response_length=3001\n"
        "trainer.n_gpus_per_node=8\n"
    )
    drafted = draft(read_text(text, framework="verl"))
    assert drafted.job.workload.seq_len == 4016
