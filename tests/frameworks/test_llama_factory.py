"""LLaMA-Factory's YAML."""

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

HEAD = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\n"


def read(body: str) -> Reading:
    return read_text(HEAD + body, file="train.yaml", framework="llama-factory")


WIDTHS = ("zero_stage", "precision", "param_bytes", "grad_bytes", "master_weights")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("finetuning_type: full\nbf16: true\n", (0, "bf16", 4, 4, False)),
        ("finetuning_type: full\npure_bf16: true\n", (0, "bf16", 2, 2, False)),
        ("finetuning_type: lora\nbf16: true\n", (0, "bf16", 2, 4, False)),
        ("bf16: true\n", (0, "bf16", 2, 4, False)),
        (
            "finetuning_type: full\nbf16: true\ndeepspeed: ds_z0_config.json\n",
            (0, "bf16", 2, 2, True),
        ),
        (
            "finetuning_type: full\nbf16: true\ndeepspeed: ds_z2_config.json\n",
            (2, "bf16", 2, 2, True),
        ),
        (
            "finetuning_type: full\nfp16: true\ndeepspeed: examples/deepspeed/ds_z3_config.json\n",
            (3, "fp16", 2, 2, True),
        ),
        ("finetuning_type: full\ndeepspeed: ds_z3_config.json\n", (3, "fp32", 4, 4, False)),
        ("finetuning_type: full\nbf16: true\nfsdp: full_shard\n", (3, "bf16", 4, 4, False)),
    ],
)
def test_stage_and_bytes(body: str, expected: tuple[Any, ...]) -> None:
    assert values(read(body), *WIDTHS) == expected


def test_layers_are_recomputed_unless_told_otherwise() -> None:
    assert read("finetuning_type: full\n").value("recompute") == "full"
    off = read("finetuning_type: full\ndisable_gradient_checkpointing: true\n")
    assert off.value("recompute") == "none"
    away = read("finetuning_type: full\nuse_unsloth_gc: true\n")
    assert values(away, "recompute", "offload_activations") == ("full", 1.0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("finetuning_type: lora\n", (8, True, None)),
        ("lora_rank: 32\nlora_target: q_proj,v_proj\n", (32, False, None)),
        ("lora_target: q_proj,v_proj,gate_proj\nquantization_bit: 4\n", (8, True, 4)),
        ("finetuning_type: full\n", (None, None, None)),
    ],
)
def test_adapters(body: str, expected: tuple[Any, ...]) -> None:
    assert values(read(body), "lora_rank", "lora_all_linear", "base_weight_bits") == expected


def test_lengths_loss_and_attention() -> None:
    reading = read(
        "cutoff_len: 4096\nenable_liger_kernel: true\nflash_attn: disabled\n"
        "per_device_train_batch_size: 2\ngradient_accumulation_steps: 8\n"
    )
    names = ("seq_len", "fused_loss", "flash_attention", "micro_batch_size")
    assert values(reading, *names) == (4096, True, False, 2)
    assert read("flash_attn: fa2\n").value("flash_attention") is True
    assert read("bf16: true\n").value("seq_len") == 2048


def test_the_shipped_file_is_offloaded_and_agrees_with_the_trainer() -> None:
    reading = read("finetuning_type: full\nbf16: true\ndeepspeed: ds_z3_offload_config.json\n")
    names = ("offload_optimizer", "offload_params", "ds_hf_mismatches")
    assert values(reading, *names) == (1.0, True, [])


def test_a_shipped_file_is_not_missed_and_another_is() -> None:
    for file, codes in (("ds_z2_config.json", []), ("mine.json", ["CFG108"])):
        reading = read(f"finetuning_type: full\nbf16: true\ndeepspeed: {file}\n")
        assert [finding.code for finding in reading.config.findings] == codes


def test_deepspeed_in_place() -> None:
    reading = read(
        "finetuning_type: full\nbf16: true\ndeepspeed:\n  bf16:\n    enabled: auto\n"
        "  zero_optimization:\n    stage: 1\n    overlap_comm: true\n"
    )
    names = ("zero_stage", "param_bytes", "overlap_grad_reduce")
    assert values(reading, *names) == (1, 2, True)


def test_a_launcher_and_its_file_are_one(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(
        HEAD + "finetuning_type: full\nbf16: true\ndeepspeed: ds_z3_config.json\ncutoff_len: 512\n"
    )
    script = tmp_path / "run.sh"
    script.write_text("llamafactory-cli train train.yaml learning_rate=1e-5\n")
    reading = read_files([script])[0]
    assert reading.config.framework.name == "llama-factory"
    names = ("zero_stage", "param_bytes", "lora_rank", "seq_len", "recompute")
    assert values(reading, *names) == (3, 2, None, 512, "full")
    assert reading.is_stated("zero_stage")


def test_recognized_among_all() -> None:
    text = HEAD + "finetuning_type: lora\ncutoff_len: 1024\nper_device_train_batch_size: 1\n"
    parsed = parse_source(Source(file="a.yaml", text=text, syntax="yaml"))
    ranked = sorted(all_frameworks(), key=lambda f: -f.recognizes(parsed))
    assert [f.name for f in ranked[:2]] == ["llama-factory", "hf-trainer"]
