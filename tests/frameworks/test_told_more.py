"""Gradients by the words of a calculator, and what else comments tell of another run."""

from __future__ import annotations

import pytest

from meshwright.frameworks.read import read_text


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("tool: zero memory calculator\nnum_gpus: 8\n", 2),
        ("zero_stage: 3\nnum_gpus: 8\n", 2),
        ("tool: estimate_gpt\nuse_distributed_optimizer: true\n", None),
        ("tool: planner\nnum_gpus: 8\n", None),
    ],
)
def test_zero_and_trainers_have_gradients_of_two_bytes(text: str, width: int | None) -> None:
    assert read_text(text, framework="generic").value("grad_bytes") == width


def test_an_error_text_tells_both_sizes() -> None:
    text = (
        "# The checkpoint being loaded used a DP world size of 4 but the current world size is 6\n"
        '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}'
    )
    reading = read_text(text, framework="deepspeed")
    assert (reading.value("saved_dp"), reading.value("dp")) == (4, 6)


def test_nodes_of_the_run_that_saved_are_counted() -> None:
    text = (
        "# checkpoint from 2 nodes x 8 GPUs, now 1 node x 8 GPUs\n"
        "--deepspeed zero2.json --per_device_train_batch_size 2 --bf16 True\n"
    )
    reading = read_text(text, framework="hf-trainer")
    assert (reading.value("saved_num_gpus"), reading.value("gpus_per_node")) == (16, 8)
    assert reading.value("num_nodes") == 1


def test_a_trainer_in_bf16_is_none_in_fp16() -> None:
    text = (
        '{"fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n'
        "# trainer: bf16=True per_device_train_batch_size=2\n"
    )
    found = read_text(text, framework="deepspeed").value("ds_hf_mismatches")
    assert [one["deepspeed"] for one in found] == ["fp16.enabled"]
