"""Galvatron's plans, layer by layer."""

from __future__ import annotations

import json

from meshwright.frameworks.read import read_text

PLAN = {
    "pp_deg": 2,
    "tp_sizes_enc": "2,2,4,4",
    "tp_consecutive_flags": "1,1,1,1",
    "dp_types_enc": "1,1,1,1",
    "global_bsz": 64,
    "chunks": 4,
    "pp_division": "1,3",
    "checkpoint": "1,1,0,0",
    "pipeline_type": "pipedream_flush",
    "default_dp_type": "zero2",
}


def read(**changes):
    return read_text(json.dumps(PLAN | changes), file="galvatron_config.json")


def test_degrees_differ_by_layer():
    reading = read()
    assert reading.config.framework.name == "galvatron"
    expected = {
        "pp": 2,
        "tp": 4,
        "layer_tp_list": [2, 2, 4, 4],
        "min_layer_tp": 1,  # of embedding and head
        "num_hidden_layers": 4,
        "global_batch_size": 64,
        "num_microbatches": 4,
        "schedule": "1f1b",
        "zero_stage": 3,
        "recompute": "full",
        "recompute_layers": 1,
        "layout": [1, 3],
    }
    assert {name: reading.value(name) for name in expected} == expected


def test_the_default_type_counts_where_layers_have_no_other():
    assert read(dp_types_enc="0,0,0,0").value("zero_stage") == 2


def test_sequences_may_be_shared_in_place_of_tensors():
    reading = read(use_sp="1,1,1,1")
    assert (reading.value("tp"), reading.value("ulysses"), reading.value("cp")) == (1, 4, 4)
