"""verl's batch sizes against what verl computes from them."""

from __future__ import annotations

from typing import Any

from demand_examples import stated_value
from hypothesis import given
from hypothesis import strategies as st

from meshwright.frameworks.knobs import Knobs
from meshwright.frameworks.read import read_text
from meshwright.rules.demand import all_demands, suggested, verdict
from meshwright.rules.framework.verl import micro_batches_fill_the_update
from meshwright.rules.lint import lint


def _knobs(**values: Any) -> Knobs:
    return Knobs("verl", "", {n: stated_value(n, v) for n, v in values.items()}, facts={})


_small = st.integers(1, 64)


@given(mini=_small, n=st.integers(1, 8), micro=_small, gpus=st.sampled_from((1, 2, 4, 8, 16)))
def test_an_update_divides_as_the_worker_normalizes_it(
    mini: int, n: int, micro: int, gpus: int
) -> None:
    """The worker multiplies by the answers, divides by the ranks, and asserts the remainder."""
    normalized = mini * n // gpus
    refused = normalized <= 0 or normalized % micro != 0
    knobs = _knobs(mini_batch_size=mini, rollout_n=n, micro_batch_size=micro, num_gpus=gpus)
    assert verdict(micro_batches_fill_the_update, knobs) == refused
    if refused and normalized:
        repaired = suggested(micro_batches_fill_the_update, knobs)["micro_batch_size"]
        assert normalized % repaired == 0
        assert repaired <= micro


def _codes(text: str) -> set[str]:
    mine = {d.code for d in all_demands() if d.scope.startswith("verl")}
    found = lint(read_text(text, framework="verl"), predict=False).findings
    return {f.code for f in found} & mine


def test_prompts_and_samples_are_told_apart() -> None:
    """1024 prompts, mini-batches of 256 prompts, micro-batches of 80 samples, 5 answers each."""
    sizes = "data.train_batch_size=1024\nactor_rollout_ref.actor.ppo_mini_batch_size=256\n"
    ranks = "trainer.n_gpus_per_node=8\ntrainer.nnodes=1\nactor_rollout_ref.rollout.n=5\n"
    micro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="
    assert _codes(f"{sizes}{ranks}{micro}80") == set()
    assert _codes(f"{sizes}{ranks}{micro}64") == {"DAT264"}


def test_ulysses_keeps_samples_on_fewer_ranks() -> None:
    """Two ranks that share a sample halve the replicas, so each gets twice as many."""
    values = {"mini_batch_size": 64, "rollout_n": 1, "num_gpus": 8, "micro_batch_size": 16}
    assert verdict(micro_batches_fill_the_update, _knobs(**values)) is True
    assert verdict(micro_batches_fill_the_update, _knobs(**values, ulysses=2)) is False
