"""The comparison itself: what counts as a disagreement, of which kind, and what is left out."""

from __future__ import annotations

import json
import random
from typing import Any

from comparing import Config, Subject, compare, kind_of, perturbed, report


def subject(**changes: Any) -> Subject:
    """A framework that refuses an odd batch, read as DeepSpeed's file on one GPU."""
    made: dict[str, Any] = {
        "name": "odd",
        "framework": "deepspeed",
        "version": "0.19.8",
        "file": "ds_config.json",
        "draw": lambda rng: {"gpus": 1, "batch": rng.randint(0, 9)},
        "text": lambda config: json.dumps({"train_batch_size": config["batch"]}),
        "judge": refuse_odd,
    }
    return Subject(**made | changes)


def refuse_odd(config: Config) -> None:
    if config["batch"] % 2:
        raise ValueError(f"batch {config['batch']} is odd")


def test_both_kinds_of_disagreement_are_counted() -> None:
    found = compare(subject(), plans=200, seed=1)
    assert set(found.kinds) == {"only they refuse: ValueError: batch # is odd", _OURS}
    assert found.both_refuse == 0
    assert found.both_accept + len(found.disagreements) == found.plans == 200
    assert found.unexplained == found.kinds


_OURS = "only we refuse: DAT271"  # a batch of zero, which is not odd


def test_codes_that_come_later_are_left_out() -> None:
    found = compare(subject(later={"DAT271": "elsewhere"}), plans=200, seed=1)
    assert _OURS not in found.kinds
    assert found.agreement < 1


def test_kinds_that_are_meant_have_their_reason() -> None:
    found = compare(subject(accepted={r"is odd$": "a joke"}), plans=200, seed=1)
    assert set(found.unexplained) == {_OURS}
    listed = {entry["kind"]: entry["reason"] for entry in report(found)["disagreements"]}
    assert listed["only they refuse: ValueError: batch # is odd"] == "a joke"


def test_the_same_seed_draws_the_same_plans() -> None:
    first, second = (compare(subject(), plans=50, seed=3) for _ in range(2))
    assert first.disagreements == second.disagreements


def test_a_kind_has_no_numbers() -> None:
    assert kind_of("ValueError: 3 of\n  12") == "ValueError: # of #"


def test_perturbed_changes_no_more_than_asked() -> None:
    base = {"a": 0, "b": 0, "c": 0}
    offered = dict.fromkeys(base, (1,))
    changed = [perturbed(random.Random(n), base, offered, most=2) for n in range(50)]
    assert {sum(config.values()) for config in changed} == {0, 1, 2}
