import pytest

torch = pytest.importorskip("torch")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from meshwright.train.attention import kernels  # noqa: E402
from meshwright.train.attention.core import in_order  # noqa: E402
from meshwright.train.attention.rule import Rule  # noqa: E402

F64 = torch.float64


def dense(query, key, value, *, rule, sinks=None, documents=None):
    """The definition: every score, one mask, one softmax."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(-1, -2) * rule.scaling
    if rule.softcap:
        scores = rule.softcap * torch.tanh(scores / rule.softcap)
    places = torch.arange(query.shape[2])
    ago = places[:, None] - places[None, :]
    seen = (ago >= 0) & (ago < (rule.window or len(places)))
    if documents is not None:
        seen = seen & (documents[:, :, None] == documents[:, None, :])[:, None]
    scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        column = sinks[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    weights = scores.softmax(-1)
    lse = scores.logsumexp(-1)
    return weights[..., : key.shape[2]] @ value, lse


def made(*, heads=4, kv=2, tokens=13, head_dim=8, v_dim=8, rows=2, dtype=F64):
    torch.manual_seed(tokens)
    q = torch.randn(rows, heads, tokens, head_dim, dtype=dtype, requires_grad=True)
    k = torch.randn(rows, kv, tokens, head_dim, dtype=dtype, requires_grad=True)
    v = torch.randn(rows, kv, tokens, v_dim, dtype=dtype, requires_grad=True)
    return q, k, v


def gradients(out, leaves):
    torch.manual_seed(7)
    weights = torch.randn(out.shape, dtype=out.dtype)  # the same whatever the strides of `out`
    return torch.autograd.grad((out * weights).sum(), leaves)


def assert_same(ours, theirs, leaves, *, to=1e-12):
    torch.testing.assert_close(ours, theirs, atol=to, rtol=to)
    for one, other in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
        torch.testing.assert_close(one, other, atol=to, rtol=to)


def documents_of(pieces):
    return torch.tensor([[sum(t >= s for s in row[1:]) for t in range(row[-1])] for row in pieces])


@st.composite
def cases(draw):
    tokens = draw(st.integers(1, 17))
    kv = draw(st.sampled_from([1, 2, 3]))
    cuts = st.sets(st.integers(1, max(tokens - 1, 1)), max_size=4)
    pieces = tuple(tuple(sorted({0, tokens, *(c % tokens for c in draw(cuts))})) for _ in range(2))
    return {
        "shape": {
            "tokens": tokens,
            "kv": kv,
            "heads": kv * draw(st.integers(1, 3)),
            "v_dim": draw(st.sampled_from([4, 8])),
        },
        "window": draw(st.none() | st.integers(1, tokens + 1)),
        "softcap": draw(st.none() | st.just(2.0)),
        "sinks": draw(st.booleans()),
        "pieces": draw(st.none() | st.just(pieces)),
        "on_host": draw(st.booleans()),
    }


@settings(max_examples=60)
@given(cases())
def test_equals_the_definition_with_gradients(case):
    q, k, v = made(**case["shape"])
    rule = Rule(scaling=0.4, window=case["window"], softcap=case["softcap"])
    sinks = torch.randn(q.shape[1], dtype=F64, requires_grad=True) if case["sinks"] else None
    pieces = case["pieces"]
    documents = None if pieces is None else documents_of(pieces)
    told = {"pieces": pieces} if case["on_host"] else {"documents": documents}
    ours, _ = in_order(q, k, v, rule=rule, sinks=sinks, **told)
    theirs, _ = dense(q, k, v, rule=rule, sinks=sinks, documents=documents)
    leaves = [t for t in (q, k, v, sinks) if t is not None]
    assert_same(ours, theirs, leaves)


@pytest.mark.parametrize("sinks", [False, True])
def test_log_sum_exp(sinks):
    q, k, v = made()
    sinks = torch.randn(4, dtype=F64) if sinks else None
    rule = Rule(scaling=0.3)
    _, ours = in_order(q, k, v, rule=rule, sinks=sinks, want_lse=True)
    torch.testing.assert_close(ours, dense(q, k, v, rule=rule, sinks=sinks)[1])


def test_scores_are_made_for_few_queries_at_a_time(monkeypatch):
    monkeypatch.setattr(kernels, "MOST_SCORES", 2 * 4 * 13 * 3)
    widest = []
    real = kernels._scores

    def watched(query, *rest):
        widest.append(query.shape[2])
        return real(query, *rest)

    monkeypatch.setattr(kernels, "_scores", watched)
    q, k, v = made()
    rule = Rule(scaling=0.4, softcap=3.0)
    ours, _ = in_order(q, k, v, rule=rule)
    assert_same(ours, dense(q, k, v, rule=rule)[0], [q, k, v])
    assert max(widest) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    q, k, v = made(dtype=dtype)
    rule = Rule(scaling=0.4, softcap=5.0, window=5)
    sinks = torch.randn(4, dtype=dtype, requires_grad=True)
    out, lse = in_order(q, k, v, rule=rule, sinks=sinks)
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    exact, _ = dense(*(t.double() for t in (q, k, v)), rule=rule, sinks=sinks.double())
    bound = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), exact, atol=bound, rtol=bound)
    for one in gradients(out, [q, k, v, sinks]):
        assert one.dtype == dtype


def test_fake_tensors_go_through_every_path():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v = made(v_dim=4)
        sinks = torch.randn(4, dtype=F64, requires_grad=True)
        documents = torch.zeros(2, 13, dtype=torch.int32)
        for rule in (Rule(scaling=0.3), Rule(scaling=0.3, window=4), Rule(scaling=0.3, softcap=2)):
            for told in ({}, {"documents": documents}, {"pieces": ((0, 5, 13), (0, 13))}):
                out, _ = in_order(q, k, v, rule=rule, sinks=sinks, **told)
                assert out.shape == (2, 4, 13, 4)
                assert gradients(out, [q, k, v, sinks])[1].shape == k.shape
