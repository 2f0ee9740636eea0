"""axolotl's YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked import values

from meshwright.frameworks.framework import all_frameworks
from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source

HEAD = "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 8192\n"


def read(body: str) -> Reading:
    return read_text(HEAD + body, file="axolotl.yaml", framework="axolotl")


WIDTHS = ("zero_stage", "precision", "param_bytes", "optimizer_state_bytes", "master_weights")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("bf16: true\n", (0, "bf16", 2, 2, False)),
        ("", (0, "bf16", 2, 2, False)),
        ("bf16: auto\nfp16: false\n", (0, "bf16", 2, 2, False)),
        ("bf16: false\nfp16: true\n", (0, "fp16", 2, 2, False)),
        ("float32: true\n", (0, "fp32", 4, 4, False)),
        ("bf16: true\ndeepspeed: deepspeed_configs/zero1.json\n", (1, "bf16", 2, 4, True)),
        ("bf16: true\ndeepspeed: deepspeed_configs/zero3_bf16.json\n", (3, "bf16", 2, 4, True)),
        ("bf16: true\nfsdp:\n  - full_shard\n  - auto_wrap\n", (3, "bf16", 4, 4, False)),
        ("bf16: full\nfsdp_config:\n  reshard_after_forward: true\n", (3, "bf16", 2, 2, False)),
        ("bf16: true\nadapter: lora\nlora_r: 16\n", (0, "bf16", 2, 4, False)),
    ],
)
def test_stage_and_bytes(body: str, expected: tuple[Any, ...]) -> None:
    assert values(read(body), *WIDTHS) == expected


def test_fsdp2_and_its_degrees() -> None:
    reading = read(
        "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n  reshard_after_forward: false\n"
        "dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\n"
        "context_parallel_size: 2\n"
    )
    names = ("fsdp_version", "reshard_after_forward", "offload_params", "dp_shard")
    assert values(reading, *names) == (2, False, True, 4)
    names = ("dp_replicate", "tp", "cp", "context_parallel")
    assert values(reading, *names) == (2, 2, 2, "ring")
    assert read("sequence_parallel_degree: 4\n").value("cp") == 4


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("gradient_checkpointing: true\n", ("full", None)),
        ("gradient_checkpointing: unsloth\n", ("full", 1.0)),
        ("gradient_checkpointing: offload\n", ("full", 1.0)),
        ("gradient_checkpointing: true\nactivation_offloading: true\n", ("full", 1.0)),
        ("gradient_checkpointing: false\n", ("none", None)),
        ("", ("none", None)),
    ],
)
def test_recompute(body: str, expected: tuple[Any, ...]) -> None:
    assert values(read(body), "recompute", "offload_activations") == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("adapter: qlora\nlora_r: 32\nlora_target_linear: true\n", (32, True, 4)),
        ("adapter: lora\nload_in_8bit: true\nlora_target_modules:\n  - q_proj\n", (8, False, 8)),
        ("lora_r: 32\n", (None, None, None)),
    ],
)
def test_adapters(body: str, expected: tuple[Any, ...]) -> None:
    assert values(read(body), "lora_rank", "lora_all_linear", "base_weight_bits") == expected


def test_batch_loss_attention_and_packing() -> None:
    reading = read(
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\nsample_packing: true\n"
        "cut_cross_entropy: true\nflash_attention: true\noptimizer: paged_adamw_8bit\n"
    )
    names = ("micro_batch_size", "gradient_accumulation_steps", "packed", "document_mask")
    assert values(reading, *names) == (2, 4, True, True)
    names = ("fused_loss", "flash_attention", "optimizer", "seq_len")
    assert values(reading, *names) == (True, True, "adam-8bit", 8192)


def test_a_launcher_and_its_file_are_one(tmp_path: Path) -> None:
    (tmp_path / "axo.yml").write_text(HEAD + "adapter: qlora\nlora_r: 32\nbf16: true\n")
    script = tmp_path / "run.sh"
    script.write_text("axolotl train axo.yml\n")
    reading = read_files([script])[0]
    assert values(reading, "seq_len", "lora_rank", "base_weight_bits") == (8192, 32, 4)


def test_recognized_among_all() -> None:
    text = HEAD + "micro_batch_size: 1\nadapter: lora\ndatasets:\n  - path: x\n    type: alpaca\n"
    parsed = parse_source(Source(file="a.yaml", text=text, syntax="yaml"))
    ranked = sorted(all_frameworks(), key=lambda f: -f.recognizes(parsed))
    assert ranked[0].name == "axolotl"


def test_a_mesh_of_ones_is_no_mesh() -> None:
    ones = "dp_shard_size: 1\ndp_replicate_size: 1\ntensor_parallel_size: 1\n"
    assert read(ones).value("dp_shard") is None
    assert (
        read("dp_shard_size: 1\ndp_replicate_size: 2\ntensor_parallel_size: 2\n").value("dp_shard")
        == 1
    )


def test_experts_are_an_axis_beside_the_shards() -> None:
    reading = read("expert_parallel_size: 2\ndp_shard_size: 4\nfsdp_version: 2\n")
    assert values(reading, "ep", "dp_shard") == (2, 8)
