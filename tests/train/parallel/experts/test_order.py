# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.train.parallel.experts.exchange import share_counts
from meshwright.train.parallel.experts.order import permuted, sorting, spread, weighted

KEYS = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(KEYS)
def test_sorting_is_stable_and_undone_by_its_reverse(keys):
    keys = torch.tensor(keys)
    order = sorting(keys)
    assert order.forth.tolist() == sorted(range(len(keys)), key=lambda i: int(keys[i]))
    assert torch.equal(keys[order.forth][order.back], keys)
    assert torch.equal(order.reversed.forth, order.back)


@settings(deadline=None)
@given(KEYS, st.integers(1, 3))
def test_gradients_are_those_of_indexing(keys, k):
    generator = torch.Generator().manual_seed(len(keys))
    order = sorting(torch.tensor(keys * k))
    tokens = torch.randn(len(keys), 3, generator=generator, dtype=torch.float64).requires_grad_()
    slope = torch.randn(len(keys) * k, 3, generator=generator, dtype=torch.float64)
    copies = tokens.repeat_interleave(k, dim=0)
    wanted = torch.autograd.grad(copies[order.forth][order.back], tokens, slope)
    got = torch.autograd.grad(permuted(spread(tokens, order, k=k), order.reversed), tokens, slope)
    torch.testing.assert_close(got, wanted)


def test_weighing_is_differentiated_and_done_in_the_wider_format():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64).requires_grad_()
    weights = torch.rand(4, 2, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(weighted, (rows, weights))
    narrow = weighted(rows.bfloat16(), weights.float())
    assert narrow.dtype is torch.float32
    exact = (rows.bfloat16().double() * weights.float().double().unsqueeze(2)).sum(1)
    torch.testing.assert_close(narrow.double(), exact, rtol=1e-6, atol=1e-6)


@given(st.integers(0, 40), st.integers(1, 9))
def test_shares_cover_all_rows_and_none_twice(total, size):
    counts = share_counts(total, size)
    assert len(counts) == size
    assert sum(counts) == total
    assert all(count >= 0 for count in counts)
    assert max(counts) == -(-total // size)
