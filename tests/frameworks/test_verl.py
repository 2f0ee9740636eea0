"""verl's overrides: prompts here, samples there."""

from __future__ import annotations

import pytest

from meshwright.frameworks.read import read_text

ACTOR = "actor_rollout_ref.actor."
BATCHES = f"""data.train_batch_size=1024
{ACTOR}ppo_mini_batch_size=256
{ACTOR}ppo_micro_batch_size_per_gpu=80
actor_rollout_ref.rollout.n=5
trainer.n_gpus_per_node=8
trainer.nnodes=1
"""


def read(text, file="run.overrides"):
    return read_text(text, file=file)


def values(reading, names):
    return {name: reading.value(name) for name in names}


def test_prompts_become_samples():
    reading = read(BATCHES)
    assert reading.config.framework.name == "verl"
    expected = {
        "rollout_batch_size": 1024,
        "mini_batch_size": 256,
        "rollout_n": 5,
        "samples_per_step": 5120,
        "samples_per_rank": 160,
        "accumulation_steps": 2,
        "updates_per_step": 4,
        "micro_batch_size": 80,
        "global_batch_size": 1280,
        "num_gpus": 8,
        "dp": 8,
    }
    assert values(reading, expected) == expected


def test_gpus_are_not_known_unless_stated():
    reading = read("data.train_batch_size=256\nactor_rollout_ref.rollout.n=16\n")
    assert reading.value("num_gpus") is None
    assert reading.value("gpus_per_node") is None


def test_fsdp_holds_fp32_and_shards_everything():
    text = f"{ACTOR}strategy=fsdp2\n{ACTOR}ulysses_sequence_parallel_size=4\n"
    reading = read(
        text + f"{ACTOR}fsdp_config.fsdp_size=8\n" + BATCHES.replace("nnodes=1", "nnodes=4")
    )
    expected = {
        "zero_stage": 3,
        "cp": 4,
        "ulysses": 4,
        "context_parallel": "ulysses",
        "dp": 8,
        "dp_replicate": 4,
        "tp": 1,
        "param_bytes": 4,
        "master_weights": False,
        "recompute": "full",
    }
    assert values(reading, expected) == expected


@pytest.mark.parametrize(
    "asked",
    [
        f"{ACTOR}strategy=megatron\n{ACTOR}megatron.tensor_model_parallel_size=4\n",
        f"{ACTOR}megatron.tensor_model_parallel_size=4\n",
    ],
)
def test_megatron_is_below_where_it_is_configured(asked):
    prefix = f"+{ACTOR}megatron.override_transformer_config.recompute_"
    text = f"{prefix}granularity=full\n{prefix}method=uniform\n{prefix}num_layers=1\n"
    more = f"{ACTOR}megatron.pipeline_model_parallel_size=2\n"
    reading = read(BATCHES + asked + text + more)
    expected = {
        "tp": 4,
        "pp": 2,
        "dp": 1,
        "zero_stage": 1,
        "param_bytes": 2,
        "master_weights": True,
        "recompute": "full",
        "recompute_layers": 0,
        "recompute_uniform": False,
        "sequence_parallel": True,
    }
    assert values(reading, expected) == expected
    assert not reading.config.unknown


def test_a_budget_of_tokens_sets_the_micro_batch():
    text = BATCHES + f"{ACTOR}use_dynamic_bsz=True\n{ACTOR}ppo_max_token_len_per_gpu=8192\n"
    reading = read(text + "data.max_prompt_length=1024\ndata.max_response_length=1024\n")
    assert reading.value("seq_len") == 2048
    assert reading.value("micro_batch_size") == 4
    assert reading.value("dynamic_batch_size") is True
    assert reading.value("accumulation_steps") is None


def test_supervised_fine_tuning_counts_sequences():
    text = (
        "engine.ulysses_sequence_parallel_size=8\nmodel.path=Qwen3.5-27B\ndata.max_length=32768\n"
    )
    reading = read(text + "data.max_token_len_per_gpu=4096\nmodel.use_remove_padding=true\n")
    expected = {
        "ulysses": 8,
        "model_name": "Qwen3.5-27B",
        "seq_len": 32768,
        "max_token_len_per_gpu": 4096,
        "remove_padding": True,
        "rollout_batch_size": None,
    }
    assert values(reading, expected) == expected


def test_a_launch_script_is_read_like_its_overrides():
    body = " \\\n    ".join(BATCHES.split())
    reading = read(f"python3 -m verl.trainer.main_ppo \\\n    {body}\n", file="run.sh")
    assert reading.config.framework.name == "verl"
    assert reading.value("accumulation_steps") == 2
