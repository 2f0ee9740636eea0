"""nanotron's YAML."""

from __future__ import annotations

import pytest

from meshwright.frameworks.read import read_text

CONFIG = """
parallelism:
  dp: 4
  pp: 2
  tp: 2
  pp_engine: 1f1b
  tp_mode: REDUCE_SCATTER
  tp_linear_async_communication: true
  recompute_layer: true
tokens:
  micro_batch_size: 3
  batch_accumulation_per_replica: 8
  sequence_length: 4096
  train_steps: 100
optimizer:
  zero_stage: 1
  accumulate_grad_in_fp32: true
  learning_rate_scheduler:
    learning_rate: 0.0003
model:
  dtype: bfloat16
  make_vocab_size_divisible_by: 128
  model_config:
    hidden_size: 2048
    num_hidden_layers: 28
    num_attention_heads: 16
    num_key_value_heads: 2
    vocab_size: 128255
    tie_word_embeddings: true
checkpoints:
  resume_checkpoint_path: checkpoints/10
"""


def read(text):
    return read_text(text, file="config.yaml")


def test_everything_in_its_place():
    reading = read(CONFIG)
    assert reading.config.framework.name == "nanotron"
    assert not reading.config.unknown
    expected = {
        "dp": 4,
        "pp": 2,
        "tp": 2,
        "schedule": "1f1b",
        "sequence_parallel": True,
        "overlap_tp": True,
        "recompute": "full",
        "micro_batch_size": 3,
        "global_batch_size": 96,
        "num_microbatches": 8,
        "seq_len": 4096,
        "train_tokens": 100 * 96 * 4096.0,
        "zero_stage": 1,
        "master_weights": True,
        "grad_bytes": 4,
        "learning_rate": 0.0003,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "padded_vocab_size": 128256,
        "resume": True,
    }
    assert {name: reading.value(name) for name in expected} == expected


def test_the_engine_runs_all_forwards_first_unless_told_otherwise():
    assert read("parallelism: {dp: 1, pp: 2, tp: 1}\n").value("schedule") == "gpipe"


@pytest.mark.parametrize(
    ("accumulates", "widths"), [("true", (2, 4, 4, True)), ("false", (2, 2, 2, False))]
)
def test_fp32_accumulation_brings_fp32_copies(accumulates, widths):
    mesh = "parallelism: {dp: 1, pp: 1, tp: 1}\n"
    reading = read(f"{mesh}optimizer:\n  accumulate_grad_in_fp32: {accumulates}\n")
    names = ("param_bytes", "grad_bytes", "optimizer_state_bytes", "master_weights")
    assert tuple(reading.value(name) for name in names) == widths


def test_the_older_layout_of_the_optimizer_is_known():
    text = "parallelism: {dp: 1, pp: 1, tp: 1}\noptimizer: {adam_beta1: 0.9, zero_stage: 0}\n"
    assert not read(text).config.unknown


def test_a_remark_states_the_saved_mesh():
    reading = read("# checkpoint written with tp 2\nparallelism:\n  dp: 1\n  pp: 1\n  tp: 1\n")
    assert reading.value("saved_tp") == 2


def test_layers_lie_where_their_cost_puts_them() -> None:
    text = (
        "parallelism: {dp: 1, tp: 1, pp: 4, pp_engine: 1f1b}\n"
        "tokens: {micro_batch_size: 1, sequence_length: 512, batch_accumulation_per_replica: 8}\n"
        "model: {model_config: {hidden_size: 1024, num_hidden_layers: 16,\n"
        "  intermediate_size: 4096, num_attention_heads: 16, vocab_size: 128256,\n"
        "  is_llama_config: true}}\n"
    )
    layout = read_text(text, file="config.yaml", framework="nanotron").value("layout")
    assert layout == [6, 6, 4, 0]
