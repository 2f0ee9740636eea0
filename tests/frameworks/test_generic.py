"""Files of no known framework."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.frameworks.framework import all_frameworks
from meshwright.frameworks.generic.table import any_table
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.read import read_text
from meshwright.frameworks.variables import variables


def read(text, file="notes.yaml"):
    return read_text(text, file=file, framework="generic")


def test_a_planners_input():
    text = "tool: llm-analysis\nnum_gpus_per_node: 8\ntp_size: 16\ndp_size: 1\n"
    reading = read_text(
        text + "intra_node_bandwidth_gbps: 300\ninter_node_bandwidth_gbps: 25\n", file="x.yaml"
    )
    assert reading.config.framework.name == "generic"
    expected = {
        "tool": "llm-analysis",
        "gpus_per_node": 8,
        "tp": 16,
        "dp": 1,
        "intra_node_bandwidth_gbps": 300,
        "inter_node_bandwidth_gbps": 25,
    }
    assert {name: reading.value(name) for name in expected} == expected


def test_an_estimate_by_parameter():
    text = "use_distributed_optimizer: true\ndata_parallel_size: 8\n"
    reading = read(text + "bytes_per_param: {weights: 2, gradients: 2, optimizer: 8}\n")
    names = ("weights", "gradients", "optimizer")
    assert [reading.value(f"claimed_bytes_per_param_{n}") for n in names] == [2, 2, 8]
    assert (reading.value("zero_stage"), reading.value("dp")) == (1, 8)


def test_internlm_nests_its_degrees():
    text = """
data = dict(seq_len=2048, micro_num=4, micro_bsz=2)
parallel = dict(zero1=dict(size=8), tensor=dict(size=2, mode="mtp"), pipeline=dict(size=1))
model = dict(num_layers=32, hidden_size=4096, num_attention_heads=32, dtype="torch.bfloat16")
"""
    reading = read(text, file="7B_sft.py")
    expected = {
        "seq_len": 2048,
        "gradient_accumulation_steps": 4,
        "micro_batch_size": 2,
        "zero_stage": 1,
        "tp": 2,
        "pp": 1,
        "num_hidden_layers": 32,
        "precision": "bf16",
    }
    assert {name: reading.value(name) for name in expected} == expected


def test_packed_rows():
    reading = read("context_parallel_size: 2\ncu_seqlens: [0, 4, 7]\npadded_total: 10\n")
    found = [reading.value(n) for n in ("cp", "cu_seqlens", "padded_total")]
    assert found == [2, [0, 4, 7], 10]


@pytest.mark.parametrize(
    ("written", "word"),
    [("bf16-mixed", "bf16"), ("torch.float16", "fp16"), ("fp8_hybrid", "fp8"), ("32-true", "fp32")],
)
def test_words_of_precision(written, word):
    assert read(f"precision: {written}\n").value("precision") == word


@pytest.mark.parametrize(
    ("written", "word"),
    [("PipeDream-Flush", "1f1b"), ("ZeroBubble", "zb-h1"), ("GPipe", "gpipe"), ("own", None)],
)
def test_words_of_schedules(written, word):
    assert read(f"schedule: {written}\n").value("schedule") == word


@pytest.mark.parametrize(
    ("written", "word"), [("true", "full"), ("none", "none"), ("selective", "selective")]
)
def test_words_of_recompute(written, word):
    assert read(f"activation_checkpointing: {written}\n").value("recompute") == word


def test_what_nobody_has_is_kept():
    reading = read("tp: 2\nfavourite_color: blue\n")
    assert [s.spelled for s in reading.config.unknown] == ["favourite_color"]
    assert not reading.config.findings


def test_nothing_is_claimed_that_is_not_stated():
    assert not [v for v in read("tp: 2\n").values.values() if v.default]


def test_names_of_all_frameworks_are_known():
    table = any_table()
    assert {f.variable for f in table.fields if f.variable} <= {*variables()}
    understood = 0
    fields = [f for item in all_frameworks() for f in item.table.fields if f.variable]
    for field in fields:
        found = table.find(field.name)
        understood += found is not None and found.variable == field.variable
    assert understood > 0.6 * len(fields)


@given(
    st.dictionaries(
        st.sampled_from([f.name for f in any_table().fields]),
        st.one_of(st.integers(-5, 5), st.booleans(), st.text(max_size=8), st.none()),
        max_size=6,
    )
)
def test_any_values_give_a_draft(settings):
    import json

    reading = read_text(json.dumps(settings), file="x.json", framework="generic")
    assert draft(reading).job.plan is not None
