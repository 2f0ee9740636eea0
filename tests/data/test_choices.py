"""Choices of settings are what the code that they choose from knows."""

from __future__ import annotations

from meshwright.data.clean import pii
from meshwright.data.pack.strategy import STRATEGIES
from meshwright.data.ranges import CHOICES
from meshwright.data.tokens import files


def test_choices_are_those_that_there_are() -> None:
    assert set(CHOICES["pii.kinds"]) == set(pii.KINDS)
    assert CHOICES["tokenizer.kind"] == files.KINDS
    assert set(CHOICES["pack.strategy"]) == set(STRATEGIES)
