"""Arguments of transformers' trainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asked import values

from meshwright.frameworks.framework import all_frameworks
from meshwright.frameworks.hugging_face.optimizers import optimizer_word
from meshwright.frameworks.read import read_files, read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.setting import Source
from meshwright.frameworks.text import parse_source


def read(flags: str, *, version: str = "") -> Reading:
    text = "torchrun --nproc_per_node 8 train.py " + flags
    return read_text(text, file="run.sh", framework="hf-trainer", version=version)


WIDTHS = ("precision", "param_bytes", "grad_bytes", "reduce_bytes", "master_weights")


@pytest.mark.parametrize(
    ("flags", "version", "expected"),
    [
        ('--fsdp "full_shard auto_wrap"', "4.40", (3, True, 1)),
        ('--fsdp "full_shard auto_wrap"', "5.24", (3, True, 2)),
        ('--fsdp "full_shard auto_wrap"', "", (3, True, 2)),
        ('--fsdp "shard_grad_op"', "5.24", (3, False, 2)),
        ('--fsdp "no_shard"', "4.40", (0, True, 1)),
        ("--fsdp true", "5.24", (3, True, 2)),
        (
            '--fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer',
            "",
            (3, True, 1),
        ),
    ],
)
def test_fsdp_in_words(flags: str, version: str, expected: tuple[Any, ...]) -> None:
    reading = read("--bf16 True " + flags, version=version)
    assert values(reading, "zero_stage", "reshard_after_forward", "fsdp_version") == expected


def test_offload_is_a_word_too() -> None:
    reading = read('--bf16 True --fsdp "full_shard offload"')
    assert values(reading, "offload_params", "offload_optimizer") == (True, 1.0)


@pytest.mark.parametrize(
    ("flags", "version", "expected"),
    [
        ("--bf16", "", ("bf16", 4, 4, 4, False)),
        ("--bf16 True --fsdp full_shard", "", ("bf16", 4, 4, 2, False)),
        ("--fp16 True", "4.40", ("fp16", 4, 4, 4, False)),
        ("--bf16 True --torch_dtype bfloat16", "4.40", ("bf16", 2, 2, 2, False)),
        ("--bf16 True", "5.24", ("bf16", 2, 2, 2, False)),
        ("--bf16 True --dtype float32", "5.24", ("bf16", 4, 4, 4, False)),
        ("--learning_rate 1e-5", "", ("fp32", 4, 4, 4, False)),
        (
            "--bf16 True --torch_dtype bfloat16 --use_peft --lora_r 8",
            "",
            ("bf16", 2, 4, 4, False),
        ),
    ],
)
def test_bytes_of_every_copy(flags: str, version: str, expected: tuple[Any, ...]) -> None:
    assert values(read(flags, version=version), *WIDTHS) == expected


def test_batch_length_recompute_and_loss() -> None:
    reading = read(
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --block_size 8192 "
        "--gradient_checkpointing True --use_liger_kernel --attn_implementation eager"
    )
    names = ("micro_batch_size", "gradient_accumulation_steps", "seq_len", "recompute")
    assert values(reading, *names) == (2, 4, 8192, "full")
    assert values(reading, "fused_loss", "flash_attention", "num_gpus") == (True, False, 8)


def test_defaults_of_the_trainer() -> None:
    reading = read("--learning_rate 1e-5")
    names = ("micro_batch_size", "gradient_accumulation_steps", "recompute", "fused_loss")
    assert values(reading, *names) == (8, 1, "none", False)
    assert not reading.is_stated("micro_batch_size")
    assert values(reading, "flash_attention", "zero_stage") == (True, 0)
    assert read("--learning_rate 1e-5", version="4.30").value("flash_attention") is False


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("adamw_torch_fused", "adam"),
        ("adamw_bnb_8bit", "adam-8bit"),
        ("paged_adamw_32bit", "adam"),
        ("paged_adamw_8bit", "adam-8bit"),
        ("adamw_torch_4bit", "adam-8bit"),
        ("adafactor", "adafactor"),
        ("OptimizerNames.ADAFACTOR", "adafactor"),
        ("sgd", "sgd"),
        ("lion_32bit", "sgd-momentum"),
        ("adalomo", "sgd"),
        ("muon", "muon"),
        ("something_new", None),
        (3, None),
    ],
)
def test_optimizers(name: Any, word: str | None) -> None:
    assert optimizer_word(name) == word


def test_a_deepspeed_file_fills_auto_and_contradicts(tmp_path: Path) -> None:
    config = {
        "train_batch_size": 128,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": 0.3,
        "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
        "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
    }
    (tmp_path / "ds.json").write_text(json.dumps(config))
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nproc_per_node 8 train.py --deepspeed ds.json --bf16 True "
        "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --learning_rate 1e-5\n"
    )
    reading = read_files([script])[0]
    assert reading.config.framework.name == "hf-trainer"
    names = ("zero_stage", "offload_params", "precision", "param_bytes", "master_weights")
    assert values(reading, *names) == (3, True, "bf16", 2, True)
    assert reading.value("model_build") == "sharded"
    assert values(reading, "micro_batch_size", "gradient_accumulation_steps") == (2, 4)
    found = {m["deepspeed"]: m for m in reading.value("ds_hf_mismatches")}
    assert set(found) == {"train_batch_size", "gradient_clipping", "optimizer.params.betas"}
    assert found["train_batch_size"]["trainer_value"] == 64
    assert found["gradient_clipping"]["trainer_value"] == 1.0
    assert len(reading.settings_of("ds_hf_mismatches")) >= 3


def test_bf16_of_the_json_counts_where_the_trainer_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"bf16": {"enabled": true}, "train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
    )
    script = tmp_path / "run.sh"
    script.write_text("deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 1\n")
    reading = read_files([script])[0]
    assert values(reading, "zero_stage", "precision", "param_bytes") == (2, "bf16", 2)
    keys = {m["deepspeed"] for m in reading.value("ds_hf_mismatches")}
    assert keys == {"bf16.enabled"}


def test_a_file_that_is_not_there_is_known_by_its_name() -> None:
    reading = read("--bf16 True --deepspeed configs/zero3_offload.json")
    names = ("zero_stage", "offload_params", "offload_optimizer", "param_bytes")
    assert values(reading, *names) == (3, True, 1.0, 2)
    assert [s.spelled for s in reading.settings_of("zero_stage")] == ["zero_optimization.stage"]
    assert reading.settings_of("zero_stage")[0].source.text.startswith("torchrun")


def test_accelerate_beside_it(tmp_path: Path) -> None:
    (tmp_path / "fsdp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 16\n"
        "num_machines: 2\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n"
        "  fsdp_reshard_after_forward: false\n"
    )
    (tmp_path / "run.sh").write_text(
        "accelerate launch --config_file fsdp.yaml train.py --per_device_train_batch_size 1 "
        "--gradient_checkpointing True --eval_strategy no\n"
    )
    reading = read_files([tmp_path / "run.sh"])[0]
    assert reading.config.framework.name == "hf-trainer"
    names = ("zero_stage", "reshard_after_forward", "num_gpus", "precision", "param_bytes")
    assert values(reading, *names) == (3, False, 16, "bf16", 4)
    assert reading.value("recompute") == "full"


def test_qlora_and_its_targets() -> None:
    reading = read(
        "--bf16 True --use_peft --lora_r 64 --load_in_4bit --lora_target_modules q_proj v_proj"
    )
    names = ("lora_rank", "base_weight_bits", "lora_all_linear", "param_bytes")
    assert values(reading, *names) == (64, 4, False, 2)
    everywhere = read("--use_peft --lora_r 8 --lora_target_modules all-linear")
    assert everywhere.value("lora_all_linear") is True


def test_answers_of_a_policy_are_as_long_as_prompt_and_answer() -> None:
    reading = read("--max_prompt_length 512 --max_completion_length 1536 --num_generations 8")
    assert values(reading, "seq_len", "num_generations") == (2048, 8)


def test_arguments_that_were_dropped_tell_the_version() -> None:
    old = read("--bf16 True --warmup_ratio 0.1 --fsdp full_shard")
    assert old.config.version.startswith("4.")
    assert old.value("fsdp_version") == 1
    assert [f.code for f in old.config.findings] == []
    assert read("--bf16 True --fsdp full_shard").config.version == ""


def test_recognized_among_all() -> None:
    text = "torchrun train.py --per_device_train_batch_size 1 --bf16 True --fsdp full_shard"
    parsed = parse_source(Source(file="a.sh", text=text, syntax="shell"))
    ranked = sorted(all_frameworks(), key=lambda f: -f.recognizes(parsed))
    assert ranked[0].name == "hf-trainer"
