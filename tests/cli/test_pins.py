"""--pin and --ban: lists, ranges, words and lists of modules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.api import options
from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.cli.pins import parse_pins
from meshwright.plan.plan import RecomputeModule, Schedule


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["tp=8"], {"tp": [8]}),
        (["tp=2,4", "tp=8"], {"tp": [2, 4, 8]}),
        (["pp=2..4"], {"pp": [2, 3, 4]}),
        (["micro-batch-size=1"], {"micro_batch_size": [1]}),
        (["overlap_tp=true"], {"overlap_tp": [True]}),
        (["offload_optimizer=0.5"], {"offload_optimizer": [0.5]}),
        (["schedule=1f1b, zb-h1"], {"schedule": ["1f1b", "zb-h1"]}),
        (["layout=9,10,9"], {"layout": [[9, 10, 9]]}),
    ],
)
def test_reads(texts, expected):
    assert parse_pins(texts) == expected


@pytest.mark.parametrize("text", ["tp", "=8", "tp=", "", "tp= "])
def test_refuses(text):
    with pytest.raises(MeshwrightError, match="cannot read"):
        parse_pins([text])


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    try:
        pins = parse_pins([text])
        options(pins, {})
    except MeshwrightError:
        return
    assert len(pins) == 1


def test_pins_become_values_of_the_plan():
    settings = options(parse_pins(["schedule=interleaved", "recompute_modules=mlp,norm"]), {})
    assert settings.pins["schedule"] == (Schedule.ONE_F_ONE_B,)
    assert settings.bans["vpp"] == (1,)
    assert settings.base.recompute_modules == RecomputeModule.MLP | RecomputeModule.NORM


def test_every_wrong_pin_is_reported_at_once():
    with pytest.raises(InvalidInput) as caught:
        options({"tpp": 1, "tp": "eight", "pp": 0}, {"precision": "bf17"})
    assert len(caught.value.findings) == 4
