"""From a reading to a job: what is stated, what is given, what stands in."""

from __future__ import annotations

import pytest

from meshwright.frameworks.facts import facts
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.frameworks.shape import moe_layers, shaped, stand_ins
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import load

SHAPE = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --ffn-hidden-size 14336 --swiglu --vocab-size 128256 "
    "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
)


def megatron(text):
    return read_text(f"pretrain_gpt.py {text}", file="train.sh", framework="megatron-lm")


def test_a_stated_shape_is_the_model():
    model = draft(megatron(SHAPE)).job.model
    assert (model.num_hidden_layers, model.hidden_size, model.vocab_size) == (32, 4096, 128256)
    assert "model" not in draft(megatron(SHAPE)).missing


def test_a_given_model_and_cluster_outweigh_the_file():
    drafted = draft(megatron(SHAPE), model=load("llama-3-70b"), cluster=cluster("H100:8", nodes=2))
    assert drafted.job.model.num_hidden_layers == 80
    assert drafted.job.cluster.num_gpus == 16
    assert {"model", "gpu", "num_gpus"}.isdisjoint(drafted.missing)


def test_data_parallelism_fills_the_gpus():
    reading = megatron(f"{SHAPE} --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2")
    assert draft(reading, cluster=cluster("H100:8", nodes=4)).job.plan.dp == 4


def test_a_plan_that_overfills_the_gpus_keeps_one_replica():
    reading = megatron(f"{SHAPE} --tensor-model-parallel-size 16")
    assert draft(reading, cluster=cluster("H100:8", nodes=1)).job.plan.dp == 1


def test_without_gpus_the_smallest_cluster_that_the_plan_fills_stands_in():
    reading = megatron(f"{SHAPE} --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2")
    drafted = draft(reading)
    assert {"gpu", "num_gpus"} <= {*drafted.missing}
    assert drafted.job.cluster.num_gpus % 8 == 0
    assert drafted.other.cluster.num_gpus % 8 == 0


def test_facts_hold_whatever_stands_in():
    reading = megatron(f"{SHAPE} --tensor-model-parallel-size 4")
    known = facts(draft(reading))
    assert known["num_hidden_layers"] == 32
    assert "num_gpus" not in known
    assert "gpu_cc" not in known
    whole = facts(draft(reading, cluster=cluster("H100:8", nodes=2)))
    assert (whole["num_gpus"], whole["dp"], whole["gpu_cc"]) == (16, 4, 90)


def test_the_batch_is_stated_or_follows_from_accumulation():
    text = '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}'
    reading = read_text(text, file="ds.json", framework="deepspeed")
    drafted = draft(reading, model=load("llama-3-8b"), cluster=cluster("H100:8", nodes=1))
    assert drafted.job.workload.global_batch_size == 2 * 3 * 8


def test_an_expert_mesh_counts_only_for_experts():
    dense = draft(megatron(f"{SHAPE} --tensor-model-parallel-size 4"))
    assert dense.job.plan.etp == 1
    routed = draft(megatron(f"{SHAPE} --tensor-model-parallel-size 4 --num-experts 8"))
    assert routed.job.plan.etp == 4


@pytest.mark.parametrize("degree", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 32, 64])
def test_every_usual_degree_divides_the_accommodating_stand_in(degree):
    _, model = stand_ins({}, experts=True)
    attention = model.runs[0].block.attention
    sizes = (model.hidden_size, model.num_hidden_layers, attention.num_key_value_heads)
    assert all(size % degree == 0 for size in sizes)


def test_stated_parts_of_a_shape_stand_in_both_stand_ins():
    for model in stand_ins({"num_hidden_layers": 46, "num_attention_heads": 96}, experts=False):
        assert model.num_hidden_layers == 46
        assert model.runs[0].block.attention.num_attention_heads == 96


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [
        ("([0]*3+[1]*5)", (False,) * 3 + (True,) * 5),
        (2, (True, False) * 4),
        ("2", (True, False) * 4),
        ([0, 1, 1, 1, 1, 1, 1, 1], (False,) + (True,) * 7),
        ("([0]*3+[1]*4)", None),  # of seven layers, not eight
        ("__import__('os')", None),
        (1, None),
    ],
)
def test_layers_with_experts_are_read_from_every_spelling(frequency, expected):
    assert moe_layers(frequency, 8) == expected


def test_leading_dense_layers_come_first():
    base = {"hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8}
    model = shaped({**base, "num_experts": 4, "first_k_dense_replace": 2})
    assert [run.count for run in model.runs] == [2, 4]
    assert [run.block.is_moe for run in model.runs] == [False, True]


def test_a_precision_that_is_left_to_a_trainer_is_bf16_and_named():
    text = '{"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 1}'
    reading = read_text(text, file="ds.json", framework="deepspeed")
    drafted = draft(reading)
    assert "precision" in drafted.missing
    assert int(drafted.job.plan.param_bytes) == 2
    for other in ("true", "false"):
        stated = read_text(text.replace('"auto"', other), file="ds.json", framework="deepspeed")
        assert "precision" not in draft(stated).missing
