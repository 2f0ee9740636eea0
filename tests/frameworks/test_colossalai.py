"""ColossalAI's plugins."""

from __future__ import annotations

import pytest

from meshwright.frameworks.read import read_text


def read(call, *, before="", after=""):
    return read_text(f"{before}plugin = {call}\n{after}", file="train.py")


def test_the_hybrid_plugin():
    reading = read(
        'HybridParallelPlugin(tp_size=2, pp_size=4, zero_stage=1, precision="bf16", '
        'pp_style="interleaved", num_model_chunks=2, num_microbatches=8)'
    )
    assert reading.config.framework.name == "colossalai"
    expected = {
        "tp": 2,
        "pp": 4,
        "vpp": 2,
        "schedule": "interleaved",
        "pp_style": "interleaved",
        "zero_stage": 1,
        "precision": "bf16",
        "num_microbatches": 8,
        "master_weights": True,
        "flash_attention": False,
    }
    assert {name: reading.value(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("split_gather", (1, True)), ("all_to_all", (4, False)), ("ring_attn", (4, False))],
)
def test_modes_of_sequence_parallelism(mode, expected):
    reading = read(
        "HybridParallelPlugin(tp_size=2, pp_size=1, enable_sequence_parallelism=True, sp_size=4, "
        f'sequence_parallelism_mode="{mode}")'
    )
    assert (reading.value("cp"), reading.value("sequence_parallel")) == expected


def test_a_remark_states_the_model():
    reading = read(
        "HybridParallelPlugin(tp_size=2, pp_size=1, zero_stage=0)",
        after="# LlamaConfig(vocab_size=65535, hidden_size=1024)\n",
    )
    assert reading.value("vocab_size") == 65535
    assert reading.value("padded_vocab_size") == 65536


@pytest.mark.parametrize(
    ("call", "stage"),
    [
        ("LowLevelZeroPlugin(stage=2)", 2),
        ("LowLevelZeroPlugin()", 1),
        ("GeminiPlugin(offload_optim_frac=0.5)", 3),
        ("HybridParallelPlugin(tp_size=2, pp_size=1)", 0),
    ],
)
def test_every_plugin_shards_in_its_own_way(call, stage):
    assert read(call).value("zero_stage") == stage
