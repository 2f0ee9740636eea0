"""`meshwright measure`: what it prints of a tiny plan, and what it refuses without torch."""

from __future__ import annotations

import json

import pytest

from meshwright.cli.main import run

PLAN = """
stack = "fsdp"

[model]
model_type = "llama"
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
vocab_size = 96
max_position_embeddings = 128

[cluster]
gpu = "H100:8"
nodes = 1

[workload]
seq_len = 32
global_batch = 8

[plan]
tp = 2
pp = 2
zero_stage = 3
master_weights = false
param_bytes = 4
grad_bytes = 4
"""


@pytest.fixture(name="plan")
def _plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return str(path)


def test_a_rank_that_the_plan_has_not_is_refused(plan, capsys):
    assert run(["measure", plan, "--rank", "8"]) == 2
    assert "give one from 0 to 7" in capsys.readouterr().err


def test_a_plan_that_the_engine_cannot_run_is_refused(tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace("tp = 2", 'tp = 2\nschedule = "dualpipe"'))
    assert run(["measure", str(path)]) == 2
    assert "dualpipe-v" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_every_stage_is_measured_beside_its_prediction(plan, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert run(["measure", plan, "--stage", "all", "--json"]) == 0
    ranks = json.loads(capsys.readouterr().out)["ranks"]
    assert [(one["rank"], one["stage"]) for one in ranks] == [(0, 0), (4, 1)]
    for one in ranks:
        traffic = [line for line in one["lines"] if line["group"] == "traffic"]
        assert {"pp.send", "tp.all_gather", "fsdp.all_gather"} <= {line["name"] for line in traffic}
        assert all(line["measured"] == line["predicted"] for line in traffic)
        memory = {line["name"]: line for line in one["lines"] if line["group"] == "memory"}
        parts = [line["at_peak"] for name, line in memory.items() if name != "peak"]
        assert sum(parts) == memory["peak"]["measured"] > 0


@pytest.mark.filterwarnings("ignore")
def test_the_page_says_that_traffic_is_equal(plan, capsys):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert run(["measure", plan, "--rank", "0"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("rank 0, pipeline stage 0 of 2: 1 layer on fake tensors")
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("traffic on"))
    assert len(lines) > start + 3
    assert all(line.endswith("  equal") for line in lines[start + 1 :])
