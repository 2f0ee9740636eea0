"""Input that a run would only stumble over once its ranks have started."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.api.training import Nodes, begin
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.shards.indexed import writing
from meshwright.train.launch.rank import lines_of

PLAN = """
[model]
model_type = "llama"
vocab_size = 256
hidden_size = 64
intermediate_size = 128
num_hidden_layers = 2
num_attention_heads = 4
[cluster]
gpu = "H100:1"
nodes = 1
[workload]
seq_len = 32
global_batch = 8
[plan]
dp = 1
"""


@pytest.fixture(name="started")
def _started(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)

    def start(**given):
        asked = {"data": "synthetic", "steps": 5, "resume": False, "device": "cpu"}
        asked |= {"out": tmp_path / "run", "nodes": Nodes()} | given
        return begin(path, **asked)

    return start


@pytest.mark.parametrize(
    "given",
    [
        {"out": ""},
        {"steps": 0},
        {"backend": ""},
        {"weights": ""},
        {"wandb_project": ""},
        {"beta1": 1.0},
        {"beta2": 1.0},
        {"momentum": 1.0},
        {"threads": 10**8},
    ],
    ids=str,
)
def test_an_option_that_ranks_could_not_use_is_refused_with_what_to_write(started, given):
    with pytest.raises(InvalidInput) as error:
        started(**given)
    (found,) = error.value.findings
    assert found.key in given
    assert found.hint
    assert found.hint != "the default is 0" or "threads" in given


@pytest.mark.parametrize(
    ("tokens", "message"),
    [([5] * 31, "has 31 tokens, fewer than a row of 32"), ([-3] * 64, "holds token -3")],
)
def test_an_indexed_file_that_gives_no_rows_or_no_tokens_is_refused(
    started, tmp_path, tokens, message
):
    with writing(tmp_path / "data", np.int32) as (writer, _):
        writer.append(np.array(tokens, np.int32), np.array([len(tokens)]))
    found = [f for f in started(data=str(tmp_path / "data")).findings if f.key == "data"]
    assert [message in f.message for f in found] == [True]


def test_what_a_rank_refuses_comes_with_what_to_type():
    from meshwright.base.finding import Finding

    findings = [Finding(message=f"{n} is wrong", hint=f"write {n}") for n in "ab"]
    lines = list(lines_of(InvalidInput(findings)))
    assert lines == ["error: a is wrong", "hint: write a", "error: b is wrong", "hint: write b"]
    assert list(lines_of(MeshwrightError("it is full"))) == ["error: it is full"]
