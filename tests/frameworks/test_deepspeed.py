"""DeepSpeed's JSON: what it means, what it leaves to a trainer, and where the two disagree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright.frameworks.deepspeed.known import known_contents
from meshwright.frameworks.framework import all_frameworks, framework
from meshwright.frameworks.read import read_text
from meshwright.frameworks.reading import Reading
from meshwright.frameworks.setting import UNKNOWN, Source
from meshwright.frameworks.text import parse_source


def read(config: Any, *, remark: str = "", version: str = "") -> Reading:
    text = json.dumps(config, indent=1) if isinstance(config, dict) else config
    return read_text(text + remark, framework="deepspeed", version=version)


def widths(reading: Reading) -> tuple[Any, ...]:
    names = ("param_bytes", "grad_bytes", "reduce_bytes", "optimizer_state_bytes")
    return (*(reading.value(n) for n in names), reading.value("master_weights"))


@pytest.mark.parametrize(
    ("keys", "precision", "expected"),
    [
        ({"bf16": {"enabled": True}}, "bf16", (2, 2, 2, 4, True)),
        ({"bfloat16": {"enabled": True}}, "bf16", (2, 2, 2, 4, True)),
        ({"fp16": {"enabled": True}}, "fp16", (2, 2, 2, 4, True)),
        ({}, "fp32", (4, 4, 4, 4, False)),
        ({"bf16": {"enabled": False}}, "fp32", (4, 4, 4, 4, False)),
        (
            {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}},
            "bf16",
            (2, 4, 2, 4, True),
        ),
        (
            {"bf16": {"enabled": True}, "communication_data_type": "fp32"},
            "bf16",
            (2, 2, 4, 4, True),
        ),
        (
            {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
            "bf16",
            (2, 2, 2, 4, False),
        ),
        (
            {
                "bf16": {
                    "enabled": True,
                    "bf16_master_weights_and_grads": True,
                    "bf16_optimizer_states": True,
                }
            },
            "bf16",
            (2, 2, 2, 2, False),
        ),
        ({"torch_autocast": {"enabled": True, "dtype": "bfloat16"}}, "bf16", (4, 4, 2, 4, False)),
        ({"torch_autocast": {"enabled": True, "dtype": "fp16"}}, "fp16", (4, 4, 2, 4, False)),
    ],
)
def test_bytes_of_every_copy(keys: dict[str, Any], precision: str, expected: tuple[Any]) -> None:
    reading = read({"zero_optimization": {"stage": 2}, **keys})
    assert reading.value("precision") == precision
    assert widths(reading) == expected


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        ({"stage": 3}, (0.0, False, True, True)),
        ({"stage": 2}, (0.0, False, False, False)),
        ({"stage": 2, "overlap_comm": True}, (0.0, False, True, False)),
        ({"stage": 2, "cpu_offload": True}, (1.0, False, False, False)),
        ({"stage": 3, "offload_optimizer": {"device": "nvme"}}, (1.0, False, True, True)),
        ({"stage": 3, "offload_optimizer": {"device": "none"}}, (0.0, False, True, True)),
        (
            {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3}},
            (0.3, False, True, True),
        ),
        ({"stage": 3, "offload_param": {"device": "cpu"}}, (0.0, True, True, True)),
        ({"stage": 3, "cpu_offload_param": True}, (0.0, True, True, True)),
    ],
)
def test_stage_offload_and_overlap(zero: dict[str, Any], expected: tuple[Any, ...]) -> None:
    reading = read({"bf16": {"enabled": True}, "zero_optimization": zero})
    names = ("offload_optimizer", "offload_params", "overlap_grad_reduce", "overlap_param_gather")
    assert reading.value("zero_stage") == zero["stage"]
    assert tuple(reading.value(n) for n in names) == expected


def test_the_oldest_way_to_ask_for_zero_is_stage_one() -> None:
    assert read({"zero_optimization": True, "fp16": {"enabled": True}}).value("zero_stage") == 1


@pytest.mark.parametrize(
    ("triad", "expected"),
    [
        ((64, 4, 2), (4, 2, 64)),
        ((64, None, 2), (4, 2, 64)),
        ((64, None, None), (8, None, 64)),
        ((None, 4, 2), (4, 2, None)),
        ((None, 4, None), (4, 1, None)),
        ((None, None, None), (None, None, None)),
    ],
)
def test_batch_on_eight_gpus(triad: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    stated = {key: value for key, value in zip(keys, triad, strict=True) if value is not None}
    reading = read({**stated, "zero_optimization": {"stage": 2}}, remark="\n# 8 GPUs")
    names = ("micro_batch_size", "gradient_accumulation_steps", "global_batch_size")
    assert tuple(reading.value(n) for n in names) == expected
    for key, value in zip(keys, triad, strict=True):
        assert reading.is_stated(key) == (value is not None)


def test_auto_is_stated_but_no_value() -> None:
    reading = read(
        {
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "bf16": {"enabled": "auto"},
            "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
            "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
        }
    )
    assert reading.config.findings == ()
    for variable in ("train_batch_size", "learning_rate", "reduce_bucket_size"):
        assert reading.values[variable].value is UNKNOWN
        assert reading.is_stated(variable)


def test_keys_that_no_release_has_and_keys_that_were_removed() -> None:
    zero = {"stage": 3, "overlap_com": True, "mics_shard_size": 8}
    reading = read(
        {"train_batch_size": 8, "elasticity": {"enabled": True}, "x": 1}
        | {"zero_optimization": zero}
    )
    assert reading.value("ds_unknown_zero_keys") == ["overlap_com"]
    assert {"elasticity", "mics_shard_size", "train_batch_size"} <= {
        *reading.value("ds_config_keys")
    }
    assert {s.spelled for s in reading.config.unknown} == {"x", "zero_optimization.overlap_com"}
    table = framework("deepspeed").table
    assert not table.named("elasticity.enabled").exists_in("0.19.8")
    assert table.named("elasticity.enabled").exists_in("0.14")


def test_json_of_a_loose_hand() -> None:
    text = '{ // comment\n "train_batch_size": 8, # eight\n "zero_optimization": {"stage": 1,},}'
    reading = read(text)
    assert (reading.value("train_batch_size"), reading.value("zero_stage")) == (8, 1)


def test_mismatches_with_a_trainer_told_of_in_a_remark() -> None:
    config = {
        "train_batch_size": 16,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-4, "betas": "auto"}},
        "zero_optimization": {"stage": 2},
    }
    remark = (
        "\n# trainer: per_device_train_batch_size=4 gradient_accumulation_steps=2 "
        "learning_rate=1e-4 max_grad_norm=1.0, 4 GPUs"
    )
    found = read(config, remark=remark).value("ds_hf_mismatches")
    assert {(m["deepspeed"], m["deepspeed_value"], m["trainer_value"]) for m in found} == {
        ("train_batch_size", 16, 32),
        ("optimizer.params.lr", 2e-4, 1e-4),
    }


def test_a_remark_that_agrees_has_no_mismatch() -> None:
    config = {"train_batch_size": 32, "zero_optimization": {"stage": 2}}
    remark = "\n# trainer: per_device_train_batch_size=4 gradient_accumulation_steps=2, 4 GPUs"
    reading = read(config, remark=remark)
    assert reading.value("ds_hf_mismatches") == []
    assert reading.value("micro_batch_size") == 4


def test_degrees() -> None:
    reading = read(
        {
            "train_batch_size": 8,
            "tensor_parallel": {"autotp_size": 4},
            "sequence_parallel_size": 2,
            "expert_parallel": {"enabled": True, "autoep_size": 8},
        }
    )
    names = ("tp", "cp", "ulysses", "context_parallel", "ep")
    assert tuple(reading.value(n) for n in names) == (4, 2, 2, "ulysses", 8)
    off = read({"train_batch_size": 8, "expert_parallel": {"enabled": False, "autoep_size": 8}})
    assert (off.value("tp"), off.value("ep")) == (1, 1)


@pytest.mark.parametrize(
    ("file", "stage", "offloads"),
    [
        ("examples/deepspeed/ds_z3_config.json", 3, (None, None)),
        ("ds_z3_offload_config.json", 3, ("cpu", "cpu")),
        ("ds_z2_offload_config.json", 2, ("cpu", None)),
        ("deepspeed_configs/zero3_bf16_cpuoffload_params.json", 3, (None, "cpu")),
        ("configs/zero3.json", 3, (None, None)),
        ("my_stage2_offload.json", 2, ("cpu", None)),
        ("ds_config_zero1.json", 1, (None, None)),
    ],
)
def test_files_known_by_name(file: str, stage: int, offloads: tuple[Any, ...]) -> None:
    contents = known_contents(file)
    assert contents["zero_optimization.stage"] == stage
    devices = ("offload_optimizer", "offload_param")
    assert tuple(contents.get(f"zero_optimization.{d}.device") for d in devices) == offloads


@pytest.mark.parametrize("file", ["ds_config.json", "z35.json", "accelerate.yaml", None, 3])
def test_names_that_promise_nothing(file: Any) -> None:
    assert known_contents(file) == {}


@pytest.mark.parametrize(
    "text",
    [
        '{"zero_optimization": 3}',
        '{"zero_optimization": {"stage": "three"}}',
        "{}",
        '{"bf16": []}',
        '{"train_batch_size": -1, "zero_optimization": {"stage": 7}}',
        '{"optimizer": {"params": 1}}',
    ],
)
def test_strange_values_are_read_without_a_fault(text: str) -> None:
    assert read(text).config.framework.name == "deepspeed"


def test_recognized_among_all() -> None:
    text = (
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {}}'
    )
    parsed = parse_source(Source(file="a.json", text=text, syntax="json"))
    ranked = sorted(all_frameworks(), key=lambda f: -f.recognizes(parsed))
    assert ranked[0].name == "deepspeed"
