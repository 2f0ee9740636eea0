"""Rows dealt to ranks by cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.loader import Loader
from meshwright.data.loader.deal import imbalance, in_order, leveled

shapes = st.tuples(st.integers(1, 8), st.integers(1, 6), st.integers(1, 4))


@given(shapes, st.data())
def test_every_row_is_dealt_once_and_never_less_evenly(shape, data):
    dp_size, micro_batches, micro_batch_size = shape
    count = dp_size * micro_batches * micro_batch_size
    costs = np.array(data.draw(st.lists(st.integers(1, 10**6), min_size=count, max_size=count)))
    deal = leveled(costs, dp_size=dp_size, micro_batch_size=micro_batch_size)
    assert deal.shape == shape
    assert sorted(deal.ravel().tolist()) == list(range(count))
    found = imbalance(costs, deal)
    spread = costs.max() / costs.mean()
    assert 1 <= found.after <= max(found.before, 1) + spread / (micro_batches * micro_batch_size)


def test_as_in_megatron_when_dealt_in_order():
    dealt = in_order(12, dp_size=3, micro_batch_size=2)
    assert dealt.tolist() == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]


@pytest.mark.parametrize(("dp_size", "micro_batch_size"), [(2, 1), (8, 1), (8, 4), (32, 1)])
def test_skewed_costs_become_level(dp_size, micro_batch_size):
    """Costs as of packed rows: some rows are one long document, most are many short ones."""
    rng = np.random.default_rng(0)
    before, after = [], []
    for _ in range(20):
        costs = (rng.pareto(1.5, 512).clip(0, 30) * 1e6 + 1e6).astype(np.int64)
        deal = leveled(costs, dp_size=dp_size, micro_batch_size=micro_batch_size)
        found = imbalance(costs, deal)
        before.append(found.before)
        after.append(found.after)
    assert np.mean(before) > 1.03
    assert np.mean(after) - 1 < (np.mean(before) - 1) / 4


def test_micro_batches_of_one_moment_are_level_too():
    rng = np.random.default_rng(1)
    costs = rng.integers(1, 1000, 8 * 16 * 4)
    deal = leveled(costs, dp_size=8, micro_batch_size=4)
    sums = costs[deal].sum(axis=2)  # [dp, micro_batches]
    plain = costs[in_order(len(costs), dp_size=8, micro_batch_size=4)].sum(axis=2)
    assert (sums.max(axis=0) / sums.mean(axis=0)).max() < 1.05
    assert (plain.max(axis=0) / plain.mean(axis=0)).mean() > 1.2


def test_ranks_agree_without_talking(folder):
    rows = []
    for rank in range(4):
        with Loader(folder, global_batch_size=16, dp_size=4, dp_rank=rank) as loader:
            batch = next(loader)
            rows += [int(m.rows[0]) for m in batch.micro_batches]
            assert batch.imbalance.after <= batch.imbalance.before
    with Loader(folder, global_batch_size=16) as loader:
        assert sorted(rows) == sorted(int(m.rows[0]) for m in next(loader).micro_batches)
