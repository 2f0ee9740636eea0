"""How much of each source, and which of its documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.pack.mixing import Stock, chosen, quotas
from meshwright.data.settings import Mix


def stocks(*pairs: tuple[float | None, int]) -> list[Stock]:
    return [Stock(name=f"s{n}", weight=w, tokens=t) for n, (w, t) in enumerate(pairs)]


def test_every_source_is_used_whole() -> None:
    assert quotas(stocks((0.5, 1000), (0.5, 300)), Mix()) == [1000, 1000]
    assert quotas(stocks((3, 900), (1, 300)), Mix()) == [900, 300]


def test_none_is_repeated_beyond_the_limit() -> None:
    assert quotas(stocks((0.5, 1000), (0.5, 300)), Mix(max_repeats=2)) == [600, 600]
    assert quotas(stocks((0.5, 1000), (0.5, 300)), Mix(max_repeats=1)) == [300, 300]
    assert quotas(stocks((0.1, 1000), (0.9, 300)), Mix()) == [133, 1200]


@given(
    st.lists(st.tuples(st.floats(0.01, 1), st.integers(1000, 10**9)), min_size=1, max_size=6),
    st.floats(0.5, 10),
)
def test_as_much_as_there_is(pairs: list[tuple[float, int]], most: float) -> None:
    given, mix = stocks(*pairs), Mix(max_repeats=most)
    wanted = quotas(given, mix)
    repeats = [quota / stock.tokens for quota, stock in zip(wanted, given, strict=True)]
    assert max(repeats) <= most + 0.001
    assert max(repeats) == pytest.approx(most, abs=0.001) or min(repeats) == pytest.approx(
        1, abs=0.001
    )
    total = sum(weight for weight, _ in pairs)
    for quota, (weight, _) in zip(wanted, pairs, strict=True):
        assert quota == pytest.approx(sum(wanted) * weight / total, abs=2)


def test_a_total_that_repeats_a_source() -> None:
    assert quotas(stocks((0.5, 1000), (0.5, 300)), Mix(tokens=1200)) == [600, 600]


def test_how_often_a_source_may_repeat() -> None:
    given = stocks((0.5, 1000), (0.5, 100))
    assert quotas(given, Mix(tokens=1000, max_repeats=5.0)) == [500, 500]
    with pytest.raises(InvalidInput, match=r"mix\.max_repeats is 1"):
        quotas(given, Mix(tokens=1000, max_repeats=1.0))


def test_sources_without_a_weight_share_the_rest_by_what_they_have() -> None:
    assert quotas(stocks((0.5, 400), (None, 100), (None, 300)), Mix()) == [400, 100, 300]
    assert quotas(stocks((0.2, 100), (None, 100), (None, 300)), Mix()) == [100, 100, 300]
    assert quotas(stocks((0.5, 200), (None, 100), (None, 300)), Mix()) == [400, 100, 300]


def test_a_source_of_no_weight_is_left_out() -> None:
    assert quotas(stocks((0, 500), (1, 300)), Mix()) == [0, 300]


@pytest.mark.parametrize(
    ("given", "mix", "says"),
    [
        (stocks((0.5, 1000), (0.5, 100)), Mix(tokens=1000), "repeat s1 5.0 times"),
        (stocks((0.5, 1000), (0.5, 0)), Mix(), "no document of s1"),
        (stocks((0.7, 10), (0.3, 10), (None, 10)), Mix(), "leaves nothing"),
        (stocks((0, 10), (0, 10)), Mix(), "no source has a weight"),
    ],
)
def test_what_cannot_be_mixed_is_refused(given: list[Stock], mix: Mix, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as error:
        quotas(given, mix)
    assert error.value.hint


def test_the_hint_names_a_total_that_can_be_had() -> None:
    given = stocks((0.5, 1000), (0.5, 100))
    with pytest.raises(InvalidInput, match="mixed") as error:
        quotas(given, Mix(tokens=1000))
    most = int(error.value.hint.split("mix.tokens to ")[1].split()[0])
    assert most == 800
    assert quotas(given, Mix(tokens=most)) == [400, 400]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 3000))
def test_chosen_documents_hold_the_quota(lengths: list[int], quota: int) -> None:
    sizes = np.array(lengths, dtype=np.int32)
    found = chosen(np.arange(len(sizes)), sizes, quota)
    assert abs(int(sizes[found].sum()) - quota) <= max(lengths) / 2
    times = np.bincount(found, minlength=len(sizes))
    assert times.max() - times.min() <= 1
