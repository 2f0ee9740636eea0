"""Programs that call FSDP or DDP themselves."""

from __future__ import annotations

from typing import Any

import pytest
from asked import values

from meshwright.frameworks.read import read_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "distributed_strategy: fsdp\nfsdp:\n  sharding_strategy: SHARD_GRAD_OP\n"
            "  precision: pure\nglobal_train_batch_size: 256\n",
            (3, False, "bf16", 2),
        ),
        (
            "distributed_strategy: ddp\nprecision: amp_bf16\nglobal_train_batch_size: 256\n"
            "device_train_microbatch_size: 2\n",
            (0, None, "bf16", 4),
        ),
        (
            "fsdp_config:\n  sharding_strategy: FULL_SHARD\n  mixed_precision: PURE\n"
            "device_train_microbatch_size: 2\nglobal_train_batch_size: 64\nprecision: amp_bf16\n",
            (3, True, "bf16", 4),
        ),
        (
            "torchrun --nproc_per_node 4 finetuning.py --enable_fsdp --low_cpu_fsdp "
            "--pure_bf16 --batch_size_training 2",
            (3, True, "bf16", 2),
        ),
        (
            "torchrun --nproc_per_node 8 main_finetune.py --model_parallel_size 2 "
            "--data_parallel sdp --precision bf16 --accum_iter 4",
            (3, True, "bf16", 4),
        ),
    ],
)
def test_sharding_and_precision(text: str, expected: tuple[Any, ...]) -> None:
    reading = read_text(text, framework="torch-fsdp")
    names = ("zero_stage", "reshard_after_forward", "precision", "param_bytes")
    assert values(reading, *names) == expected


def test_recognized_without_being_named() -> None:
    text = (
        "torchrun --nproc_per_node 2 main_finetune.py --model_parallel_size 2 --data_parallel sdp "
        "--accum_iter 4 --max_words 512 --checkpointing --precision bf16 --batch_size 1"
    )
    reading = read_text(text)
    assert reading.config.framework.name == "torch-fsdp"
    names = ("tp", "seq_len", "recompute", "gradient_accumulation_steps", "num_gpus")
    assert values(reading, *names) == (2, 512, "full", 4, 2)


def test_degrees_that_shard_and_replicate() -> None:
    text = (
        "trainer:\n  distributed_parallelism: fsdp\n  grad_accum_iter: 4\nmodel_parallel:\n"
        "  data_parallel_shard_degree: 8\n  data_parallel_replicate_degree: 2\n"
    )
    reading = read_text(text)
    assert reading.config.framework.name == "torch-fsdp"
    names = ("dp_shard", "dp_replicate", "zero_stage", "gradient_accumulation_steps")
    assert values(reading, *names) == (8, 2, 3, 4)
    assert reading.value("reduce_every_microbatch") is True


def test_a_shape_that_olmo_states() -> None:
    text = (
        "model:\n  d_model: 2048\n  n_layers: 16\n  n_heads: 16\n  max_sequence_length: 4096\n"
        "distributed_strategy: fsdp\nglobal_train_batch_size: 512\n"
        "device_train_microbatch_size: 4\nactivation_checkpointing: whole_layer\n"
    )
    reading = read_text(text)
    assert reading.config.framework.name == "torch-fsdp"
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "seq_len", "recompute")
    assert values(reading, *names) == (2048, 16, 16, 4096, "full")


def test_hybrid_sharding_by_node() -> None:
    flags = "--enable_fsdp --sharding_strategy HYBRID_SHARD"
    text = f"torchrun --nnodes 4 --nproc_per_node 8 train.py {flags}"
    reading = read_text(text, framework="torch-fsdp")
    assert values(reading, "zero_stage", "dp_replicate", "num_gpus") == (3, 4, 32)
