from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.evidence.row import CannotExpress
from meshwright.evidence.stages import pattern_layout, redistributed
from meshwright.frameworks.nanotron.placing import Costs, cost_balanced


def test_a_megatron_layout_is_read() -> None:
    assert pattern_layout("Et*4|(t*4|)*14tmL") == (4,) * 15 + (1,)


@pytest.mark.parametrize("text", ["Et*4|(t*4|*14tmL", "x*3", "E(t*2|)*"])
def test_a_broken_layout_is_refused(text: str) -> None:
    with pytest.raises(CannotExpress, match="does not parse"):
        pattern_layout(text)


def test_nanotron_gives_a_big_head_a_stage_of_its_own() -> None:
    # 1.34B model: 16 layers of 67M weights and a head of 268M, as four layers
    assert cost_balanced(16, 8, Costs(1.0, 4.0)) == (3, 3, 2, 3, 2, 3, 0, 0)


def test_nanotron_refuses_an_empty_stage() -> None:
    assert cost_balanced(4, 16, Costs(1.0, 1.0)) is None


@given(st.integers(1, 128), st.integers(2, 32), st.floats(0.1, 8.0))
def test_balanced_stages_hold_every_layer(layers: int, chunks: int, head: float) -> None:
    counts = cost_balanced(layers, chunks, Costs(1.0, head))
    assume(counts is not None)
    assert counts is not None
    assert sum(counts) == layers
    assert len(counts) == chunks


@given(st.integers(2, 96), st.integers(2, 32), st.floats(0.0, 12.0))
def test_redistribution_is_never_worse_than_an_even_split(layers, chunks, head) -> None:
    counts = redistributed(layers, chunks, head=head)
    assert sum(counts) == layers
    longest = max(*counts[:-1], counts[-1] + head)
    assert list(counts[:-1]) == sorted(counts[:-1])
    even = -(-layers // chunks)
    assert longest <= even + head
