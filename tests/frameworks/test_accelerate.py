"""accelerate's YAML and launch flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import values

from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.reading import Reading

HEAD = (
    "compute_environment: LOCAL_MACHINE\nmixed_precision: {}\nnum_machines: 2\nnum_processes: 16\n"
)


def read(body: str, *, precision: str = "bf16") -> Reading:
    return read_text(HEAD.format(precision) + body, file="accelerate.yaml", framework="accelerate")


def fsdp(body: str) -> Reading:
    lines = "".join(f"  fsdp_{line.strip()}\n" for line in body.splitlines() if line.strip())
    return read("distributed_type: FSDP\nfsdp_config:\n" + lines)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sharding_strategy: 1", (3, True, None)),
        ("sharding_strategy: 2", (3, False, None)),
        ("sharding_strategy: 3", (0, True, None)),
        ("sharding_strategy: 4", (3, True, 2)),
        ("sharding_strategy: 5", (3, False, 2)),
        ("sharding_strategy: FULL_SHARD", (3, True, None)),
        ("sharding_strategy: SHARD_GRAD_OP", (3, False, None)),
        ("sharding_strategy: NO_SHARD", (0, True, None)),
        ("sharding_strategy: HYBRID_SHARD", (3, True, 2)),
        ("sharding_strategy: HYBRID_SHARD_ZERO2", (3, False, 2)),
        ("version: 2\nreshard_after_forward: true", (3, True, None)),
        ("version: 2\nreshard_after_forward: false", (3, False, None)),
        ("version: 1\nreshard_after_forward: SHARD_GRAD_OP", (3, False, None)),
        ("state_dict_type: FULL_STATE_DICT", (3, True, None)),
    ],
)
def test_strategies_by_number_and_word(word: str, expected: tuple[Any, ...]) -> None:
    reading = fsdp(word)
    assert values(reading, "zero_stage", "reshard_after_forward", "dp_replicate") == expected
    assert values(reading, "use_fsdp", "num_gpus", "num_nodes", "gpus_per_node") == (True, 16, 2, 8)


def test_fsdp_keeps_fp32_shards_under_mixed_precision() -> None:
    reading = fsdp("version: 2\noffload_params: true\nactivation_checkpointing: true")
    names = ("precision", "param_bytes", "grad_bytes", "reduce_bytes", "master_weights")
    assert values(reading, *names) == ("bf16", 4, 4, 2, False)
    assert values(reading, "offload_params", "offload_optimizer", "recompute") == (
        True,
        1.0,
        "full",
    )


def test_what_the_launcher_hands_to_the_other_fsdp_is_not_stated() -> None:
    reading = fsdp("version: 2\nreshard_after_forward: FULL_SHARD")
    assert values(reading, "fsdp_version", "fsdp_reshard_stated") == (2, "FULL_SHARD")
    assert fsdp("version: 1\nreshard_after_forward: true").value("fsdp_reshard_stated") is None
    prefetch = "version: {}\nforward_prefetch: true"
    assert fsdp(prefetch.format(1)).value("fsdp_forward_prefetch") is True
    assert fsdp(prefetch.format(2)).value("fsdp_forward_prefetch") is False


def test_multi_gpu_replicates() -> None:
    reading = read("distributed_type: MULTI_GPU\n")
    names = ("zero_stage", "use_fsdp", "param_bytes", "reduce_bytes")
    assert values(reading, *names) == (0, False, 4, 4)


def test_the_deepspeed_plugin() -> None:
    body = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  {}\n"
    reading = read(body.format("zero_stage: 3\n  offload_optimizer_device: cpu"))
    names = ("zero_stage", "offload_optimizer", "offload_params", "param_bytes", "master_weights")
    assert values(reading, *names) == (3, 1.0, False, 2, True)
    assert read(body.format("zero3_init_flag: false")).value("zero_stage") == 2


def test_a_deepspeed_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}, "train_batch_size": 64}'
    )
    body = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    path = tmp_path / "accelerate.yaml"
    path.write_text(HEAD.format("bf16") + body)
    reading = read_files([path])[0]
    assert reading.config.framework.name == "accelerate"
    names = ("zero_stage", "precision", "param_bytes", "num_gpus")
    assert values(reading, *names) == (1, "bf16", 2, 16)


def test_the_mesh_of_parallelism_config() -> None:
    prefix = "  parallelism_config_"
    sizes = (
        "dp_replicate_size: 2\ndp_shard_size: 2\ntp_size: 2\ncp_size: 2\ncp_comm_strategy: alltoall"
    )
    body = "".join(f"{prefix}{line}\n" for line in sizes.splitlines())
    reading = read(
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n" + body
    )
    names = ("dp_replicate", "dp_shard", "tp", "cp", "ring_cp", "context_parallel")
    assert values(reading, *names) == (2, 2, 2, 2, 2, "ring")


def test_sequence_parallelism_is_ulysses() -> None:
    reading = read("distributed_type: FSDP\nparallelism_config:\n  parallelism_config_sp_size: 4\n")
    assert values(reading, "ulysses", "cp", "context_parallel") == (4, 4, "ulysses")


def test_megatron_under_accelerate() -> None:
    lines = "tp_degree: 4\npp_degree: 2\nsequence_parallelism: true\nnum_micro_batches: 8"
    body = "".join(f"  megatron_lm_{line}\n" for line in lines.splitlines())
    reading = read("distributed_type: MEGATRON_LM\nmegatron_lm_config:\n" + body)
    names = ("tp", "pp", "sequence_parallel", "gradient_accumulation_steps", "param_bytes")
    assert values(reading, *names) == (4, 2, True, 8, 2)


def test_flags_of_launch() -> None:
    line = (
        "accelerate launch --num_processes 8 --use_fsdp --fsdp_version 2 "
        "--fsdp_reshard_after_forward false --mixed_precision bf16 train.py"
    )
    reading = read_text(line, file="run.sh")
    assert reading.config.framework.name == "accelerate"
    names = ("num_gpus", "zero_stage", "reshard_after_forward", "precision")
    assert values(reading, *names) == (8, 3, False, "bf16")


def test_a_remark_about_the_program() -> None:
    reading = read(
        "distributed_type: MULTI_GPU\n"
        "# llamafactory: finetuning_type lora, per_device_train_batch_size 2, lora_rank 32\n"
    )
    names = ("lora_rank", "micro_batch_size", "param_bytes", "lora_all_linear")
    assert values(reading, *names) == (32, 2, 2, False)
