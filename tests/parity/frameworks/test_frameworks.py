"""On random configurations `check` and each framework's own code agree on what is legal."""

from __future__ import annotations

import importlib
import json

import pytest
from comparing import Comparison, Subject, compare, report

AGREEMENT = 0.99
SUBJECTS = {  # module of the comparison -> package that judges, plans that take a few seconds
    "megatron_core": ("megatron.core", 200),
    "torchtitan_trainer": ("torchtitan", 100),
    "torch_schedules": ("torch", 200),
    "accelerate_launch": ("accelerate", 150),
    "deepspeed_config": ("deepspeed", 200),
}

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module", params=list(SUBJECTS))
def compared(request: pytest.FixtureRequest) -> Comparison:
    package, plans = SUBJECTS[request.param]
    pytest.importorskip("torch")
    pytest.importorskip(package)
    subject: Subject = importlib.import_module(request.param).SUBJECT
    return compare(subject, plans=plans, seed=0)


def test_they_agree(compared: Comparison) -> None:
    assert compared.agreement >= AGREEMENT, json.dumps(report(compared), indent=2)


def test_every_disagreement_is_meant(compared: Comparison) -> None:
    assert not compared.unexplained, json.dumps(report(compared), indent=2)


def test_plans_of_both_kinds_were_drawn(compared: Comparison) -> None:
    assert min(compared.both_refuse, compared.both_accept) > compared.plans // 5
