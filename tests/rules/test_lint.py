"""Judging a configuration: what is certain, what is withheld, where findings point, fixes."""

from __future__ import annotations

import pytest

from meshwright.base.finding import Severity
from meshwright.frameworks.read import read_text
from meshwright.frameworks.text.edit import apply
from meshwright.hardware.catalogue import cluster
from meshwright.model.catalogue import load
from meshwright.rules.lint import lint

SCRIPT = """\
TP=3
pretrain_gpt.py \\
    --tensor-model-parallel-size $TP \\
    --micro-batch-size 1 --global-batch-size 64 \\
    --bf16 --use-distributed-optimizer --overlap-grad-reduce --sequence-parallel
"""


def linted(text, *, file="train.sh", framework="", version="", **given):
    return lint(read_text(text, file=file, framework=framework, version=version), **given)


def found(result):
    return {f.code: f for f in result.findings}


def test_a_fault_that_hangs_on_the_model_is_withheld_until_it_is_given():
    unknown = linted(SCRIPT)
    assert "MOD101" not in found(unknown)
    assert "MOD101" in unknown.withheld
    assert "--model" in found(unknown)["CFG201"].hint
    known = linted(SCRIPT, model=load("llama-3-8b"), cluster=cluster("H100:6", nodes=1))
    assert found(known)["MOD101"].severity is Severity.ERROR
    assert not known.withheld


def test_a_fault_of_the_file_alone_needs_nothing_else():
    text = "pretrain_gpt.py --fp8-format hybrid --fp4-format e2m1 --bf16"
    assert found(linted(text, framework="megatron-lm"))["CMP124"].severity is Severity.ERROR


def test_a_finding_points_at_the_assignment_that_states_the_value():
    result = linted(SCRIPT, model=load("llama-3-8b"), cluster=cluster("H100:6", nodes=1))
    finding = found(result)["MOD101"]
    assert (finding.line, finding.column) == (1, 4)
    assert finding.labels[0].text == "tp = 3"


def test_a_fix_is_told_in_the_frameworks_words_and_carried_out_where_the_value_stands():
    given = {"model": load("llama-3-8b"), "cluster": cluster("H100:6", nodes=1)}
    finding = found(linted(SCRIPT, **given))["MOD101"]
    assert "--tensor-model-parallel-size 2" in finding.hint
    mended = apply(SCRIPT, finding.edits)
    assert mended == SCRIPT.replace("TP=3", "TP=2")
    assert "MOD101" not in found(linted(mended, **given))


def test_an_older_demand_is_a_note_unless_the_version_is_stated():
    text = (
        "pretrain_gpt.py --tensor-model-parallel-size 4 --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 2 --num-layers 32 --hidden-size 4096"
    )
    unstated = found(linted(text, framework="megatron-lm"))["MOD103"]
    assert unstated.severity is Severity.INFO
    old = found(linted(text, framework="megatron-lm", version="0.12"))["MOD103"]
    assert old.severity is Severity.ERROR
    assert "MOD103" not in found(linted(text, framework="megatron-lm", version="0.19"))


def test_a_demand_says_what_the_framework_does():
    text = "pretrain_gpt.py --fp8-format hybrid --fp4-format e2m1 --bf16"
    finding = found(linted(text, framework="megatron-lm"))["CMP124"]
    assert finding.consequence
    assert finding.source
    assert finding.confidence == "run"


def test_demands_of_every_framework_involved_are_asked(tmp_path):
    text = (
        '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}},'
        '"train_micro_batch_size_per_gpu": 1}'
    )
    assert "CMP206" not in found(linted(text, file="ds.json"))
    assert "CMP206" in found(linted(text.replace('"stage": 3', '"stage": 2'), file="ds.json"))


@pytest.mark.parametrize("predict", [True, False])
def test_memory_is_predicted_only_where_asked(predict):
    text = SCRIPT.replace("TP=3", "TP=1")
    given = {"model": load("llama-3-70b"), "cluster": cluster("H100:8", nodes=1)}
    codes = found(linted(text, predict=predict, **given))
    assert ("CMP121" in codes or "MOD217" in codes) is predict


def test_findings_are_in_order_of_gravity():
    result = linted(SCRIPT, model=load("llama-3-8b"), cluster=cluster("H100:6", nodes=1))
    severities = [int(f.severity) for f in result.findings]
    assert severities == sorted(severities, reverse=True)


def test_a_value_that_no_plan_holds_is_told_and_not_passed_over():
    told = found(linted("pretrain_gpt.py --tensor-model-parallel-size 0 --bf16"))["CFG109"]
    assert told.key == "--tensor-model-parallel-size"
    assert "tp = 0 is not between 1 and" in told.message


FSDP = """\
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_activation_checkpointing: true}
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""


def test_what_hangs_on_a_length_and_a_batch_that_nobody_states_is_withheld():
    given = {"model": load("llama-3-8b"), "cluster": cluster("H100:8", nodes=2)}
    result = linted(FSDP, file="a.yaml", framework="accelerate", **given)
    codes = found(result)
    assert {"seq_len", "micro_batch_size", "global_batch_size"} <= {*result.drafted.missing}
    assert "the sequence length" in codes["CFG201"].message
    assert "memory and time are not predicted" in codes["CFG201"].message
    assert codes.keys().isdisjoint({"CMP120", "COM331"})
    assert "CMP120" in result.withheld


def test_memory_that_not_even_a_short_sequence_fits_in_is_told():
    given = {"model": load("llama-3-70b"), "cluster": cluster("A100-40GB:8", nodes=2)}
    codes = found(linted(FSDP, file="a.yaml", framework="accelerate", **given))
    assert codes.keys() & {"CMP121", "MOD217"}


@pytest.mark.parametrize("batch", [64, 63])
def test_memory_over_the_devices_is_told_beside_errors_that_leave_a_cost(batch):
    text = SCRIPT.replace("TP=3", "TP=2").replace("size 1 --", "size 2 --")
    text = text.replace("size 64", f"size {batch}") + "    --seq-length 4096\n"
    text = text.replace("parallel\n    --", "parallel --")
    given = {"model": load("llama-3-70b"), "cluster": cluster("A100-40GB:8", nodes=2)}
    codes = found(linted(text, **given))
    errors = {c for c, f in codes.items() if f.severity is Severity.ERROR}
    assert errors & {"CMP121", "MOD217"}
    assert bool(errors - {"CMP121", "MOD217"}) is (batch == 63)


MODEL = "pretrain_gpt.py --num-layers 32 --hidden-size 4096 --bf16 --num-attention-heads "


@pytest.mark.parametrize(
    ("text", "file", "key"),
    [
        (MODEL + "-1", "train.sh", "--num-attention-heads"),
        (
            MODEL + "32 --num-layers-per-virtual-pipeline-stage -1",
            "train.sh",
            "--num-layers-per-virtual-pipeline-stage",
        ),
        (
            "python -m verl.trainer.main_ppo "
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=0 trainer.n_gpus_per_node=8",
            "train.sh",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        ),
        (MODEL + "32 --tensor-model-parallel-size -2", "train.sh", "--tensor-model-parallel-size"),
    ],
)
def test_a_count_below_one_is_an_error(text, file, key):
    told = [f for f in linted(text, file=file).findings if f.code == "CFG109"]
    assert [(f.key, f.severity) for f in told] == [(key, Severity.ERROR)]


def test_no_accumulation_at_all_is_an_error():
    text = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 0}'
    result = linted(text, file="ds.json", framework="deepspeed")
    assert any(f.severity is Severity.ERROR for f in result.findings)


@pytest.mark.parametrize(
    ("text", "framework", "file"),
    [
        ("[parallelism]\ndata_parallel_shard_degree = -1\n", "torchtitan", "a.toml"),
        ("[training]\nglobal_batch_size = -1\n", "torchtitan", "a.toml"),
        (
            '{"train_batch_size": "auto", "gradient_accumulation_steps": "auto"}',
            "deepspeed",
            "a.json",
        ),
        ("CUDA_VISIBLE_DEVICES=0 pretrain_gpt.py --bf16", "megatron-lm", "a.sh"),
    ],
)
def test_a_number_that_the_framework_has_a_meaning_for_is_none_too_few(text, framework, file):
    assert "CFG109" not in found(linted(text, framework=framework, file=file))
