"""What gathering sharded parameters moves, when it is repeated, and when it is not worth a word."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.plan.plan import Precision
from meshwright.rules.communication.gathers import gathered_bytes, gathers_again
from meshwright.rules.estimate import parameters_per_rank
from meshwright.rules.example import example_job
from meshwright.rules.rule import all_rules, as_numpy, check

SAID_OF_GATHERS = {"COM216", "COM330", "COM331", "DAT215", "DAT237", "CMP250"}


def _job(text):
    return as_numpy(example_job(f"plan({text})"))


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("zero_stage=3, param_bytes=4", 2),
        ("zero_stage=3, param_bytes=2", 2),
        (f"zero_stage=3, param_bytes=4, precision={int(Precision.FP32)}", 4),
        ("zero_stage=3, base_weight_bits=4, lora_rank=16", 0.5),
    ],
)
def test_a_parameter_travels_in_the_width_of_the_products(text, width):
    job = _job(text)
    assert float(gathered_bytes(job)) == width * float(parameters_per_rank(job))


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("zero_stage=3, pp=2", True),
        ("zero_stage=3, pp=2, reshard_after_forward=False", False),
        ("zero_stage=3, reshard_after_forward=False", True),
        ("zero_stage=2", False),
    ],
)
def test_a_pipeline_that_keeps_parameters_gathers_them_once(text, again):
    assert bool(np.all(gathers_again(_job(text)))) is again


def test_hidden_gathers_over_a_fast_network_are_not_mentioned():
    fast = _job("zero_stage=3, nodes=2, micro_batch_size=4, seq_len=8192, global_batch_size=64")
    slow = _job("zero_stage=3, nodes=2, net_bytes_per_s=1e9, seq_len=4096, global_batch_size=64")
    rules = [r for r in all_rules() if r.code in SAID_OF_GATHERS]
    assert not check(fast, rules)
    assert check(slow, rules)


@pytest.mark.parametrize(("model", "stages"), [("llama-3-8b", True), ("llama-3-70b", False)])
def test_whole_weights_are_advised_only_where_they_fit(model, stages):
    job = _job(f'model="{model}", zero_stage=3, global_batch_size=512, dp=64, micro_batch_size=1')
    (found,) = check(job, [r for r in all_rules() if r.code == "DAT215"])
    assert ("zero_stage" in found.hint) is stages
