import pytest

torch = pytest.importorskip("torch")
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from meshwright.train.adapters import flash  # noqa: E402


def made(queries, keys, dtype):
    torch.manual_seed(0)
    q = torch.randn(2, 4, queries, 8, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(2, 2, keys, 8, dtype=dtype, requires_grad=True) for _ in range(2))
    return q, k, v


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("queries", "keys", "causal"), [(9, 9, True), (5, 9, False)])
def test_the_operators_of_torch_are_those_we_know(queries, keys, causal, dtype):
    q, k, v = made(queries, keys, dtype)
    assert flash.serves(q, v)
    out, lse = flash.forward(q, k, v, causal=causal, scaling=0.3)
    expected = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(out, expected)
    scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) * 0.3
    seen = torch.ones(queries, keys, dtype=torch.bool)
    scores = scores.masked_fill(~seen.tril() if causal else ~seen, float("-inf"))
    torch.testing.assert_close(lse, scores.logsumexp(-1), check_dtype=False)
    up = torch.randn_like(out)
    found = flash.backward(
        up, *(t.detach() for t in (q, k, v)), out=out, lse=lse, causal=causal, scaling=0.3
    )
    wanted = torch.autograd.grad((expected * up).sum(), [q, k, v])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_other_head_sizes_and_a_wish_for_no_flash_are_respected():
    q, _, v = made(4, 4, torch.float32)
    assert not flash.serves(q, v[..., :4])
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        assert not flash.serves(q, v)
