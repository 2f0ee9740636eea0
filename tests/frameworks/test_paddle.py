"""PaddleNLP's training arguments and the tuner's degrees."""

from __future__ import annotations

import json

import pytest

from meshwright.frameworks.read import read_text


def read(**settings):
    return read_text(json.dumps(settings), file="config.json")


def test_sharding_and_data_parallel_are_two_axes():
    reading = read(
        tensor_parallel_degree=4,
        pipeline_parallel_degree=2,
        sharding="stage1",
        sharding_parallel_degree=4,
        data_parallel_degree=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8,
        bf16=True,
        fp16_opt_level="O2",
        amp_master_grad=True,
    )
    assert reading.config.framework.name == "paddlenlp"
    expected = {
        "tp": 4,
        "pp": 2,
        "zero_stage": 1,
        "sharding_degree": 4,
        "paddle_dp": 2,
        "dp": 8,
        "dp_replicate": 2,
        "global_batch_size": 128,
        "precision": "bf16",
        "param_bytes": 2,
        "grad_bytes": 4,
        "master_weights": True,
    }
    assert {name: reading.value(name) for name in expected} == expected


def test_minus_one_is_none():
    reading = read(tensor_parallel_degree=-1, pipeline_parallel_degree=-1, sharding="stage3")
    assert (reading.value("tp"), reading.value("pp")) == (1, 1)
    assert reading.value("zero_stage") == 3


def test_switches_are_found_in_their_texts():
    reading = read(
        tensor_parallel_degree=2,
        pipeline_parallel_degree=2,
        pipeline_parallel_config="enable_dp_comm_overlap enable_sharding_comm_overlap",
    )
    assert reading.value("enable_dp_comm_overlap") is True
    assert reading.value("enable_sharding_comm_overlap") is True
    assert reading.value("overlap_pp") is False


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [("full", ("full", None)), ("core_attn", ("selective", ["core-attention"]))],
)
def test_recompute_by_granularity(granularity, expected):
    reading = read(
        tensor_parallel_degree=2,
        sharding="stage1",
        recompute=True,
        recompute_granularity=granularity,
    )
    assert (reading.value("recompute"), reading.value("recompute_modules")) == expected


def test_the_tuner_has_its_own_names():
    reading = read(
        dp_degree=2,
        mp_degree=4,
        pp_degree=2,
        vpp_degree=2,
        sharding_degree=2,
        sharding_stage=1,
        micro_batch_size=1,
        use_recompute=True,
        model_cfg={"global_batch_size": 64, "hidden_size": 4096},
    )
    assert reading.config.framework.name == "paddle"
    expected = {
        "tp": 4,
        "paddle_dp": 2,
        "dp": 4,
        "zero_stage": 1,
        "schedule": "interleaved",
        "recompute": "full",
        "global_batch_size": 64,
        "num_microbatches": 16,
        "hidden_size": 4096,
    }
    assert {name: reading.value(name) for name in expected} == expected
