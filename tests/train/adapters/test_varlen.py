import inspect

import pytest

torch = pytest.importorskip("torch")
from torch.nn.attention import varlen as torchs  # noqa: E402

from meshwright.train.adapters import varlen  # noqa: E402
from meshwright.train.attention.core import in_order  # noqa: E402
from meshwright.train.attention.rule import Rule  # noqa: E402

PIECES = ((0, 5, 6, 12), (0, 12))


def by_definition(
    query, key, value, begins, begins_k, longest, longest_k, *, scale, window_size, enable_gqa
):
    """What torch's documentation says: keys i - left to i of the same document."""
    assert begins is begins_k
    assert longest == longest_k == begins.diff().max()
    groups = query.shape[1] // key.shape[1]
    assert enable_gqa == (groups > 1)
    document = torch.repeat_interleave(torch.arange(len(begins) - 1), begins.diff())
    ago = torch.arange(len(query))[:, None] - torch.arange(len(query))[None, :]
    left, right = window_size
    seen = (document[:, None] == document[None, :]) & (ago >= -right)
    seen = seen if left < 0 else seen & (ago <= left)
    scores = torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(groups, 1)) * scale
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, value.repeat_interleave(groups, 1))


@pytest.mark.parametrize("window", [None, 1, 4])
def test_documents_and_windows_are_told_as_torch_defines_them(window, monkeypatch):
    torch.manual_seed(0)
    q = torch.randn(2, 4, 12, 8, dtype=torch.float64)
    k, v = (torch.randn(2, 2, 12, 8, dtype=torch.float64) for _ in range(2))
    rule = Rule(scaling=0.3, window=window)
    expected, _ = in_order(q, k, v, rule=rule, pieces=PIECES)
    monkeypatch.setattr(torchs, "varlen_attn", by_definition)
    monkeypatch.setattr(varlen, "serves", lambda query, value: True)
    found, _ = in_order(q, k, v, rule=rule, pieces=PIECES)
    torch.testing.assert_close(found, expected)


def test_the_interface_of_torch_is_the_one_we_know():
    known = set(inspect.signature(torchs.varlen_attn).parameters)
    assert {"query", "cu_seq_q", "max_q", "scale", "window_size", "enable_gqa"} <= known
    assert list(inspect.signature(torchs.varlen_attn).parameters)[:7] == [
        *("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k")
    ]


def test_cpus_have_no_such_kernel():
    q = torch.randn(1, 2, 4, 8)
    assert not varlen.serves(q, q)
