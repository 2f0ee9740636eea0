"""Attention over ranks that do not exist, on tensors without memory, as a measurement asks."""

import pytest

torch = pytest.importorskip("torch")

from meshwright.plan.plan import ContextParallel, Plan  # noqa: E402
from meshwright.train.adapters.fake import fake_tensors, fake_world  # noqa: E402
from meshwright.train.attention.context.making import context_of, with_documents  # noqa: E402
from meshwright.train.attention.context.methods import over_ranks  # noqa: E402
from meshwright.train.attention.rule import Rule  # noqa: E402
from meshwright.train.mesh import Mesh  # noqa: E402

TOKENS = 1 << 13


@pytest.mark.parametrize("rank", [0, 5])
def test_every_method_runs_on_fake_tensors(rank):
    with fake_world(world_size=8, rank=rank):
        mesh = Mesh(Plan(cp=8, cp_inner=4), device_type="cpu")
        for method in ContextParallel:
            plan = Plan(cp=8, cp_inner=4, context_parallel=int(method))
            context = context_of(mesh, plan, seq_len=TOKENS)
            with fake_tensors():
                one_pass(context, rule=Rule(scaling=0.1), documents=None)
                if method == ContextParallel.RING:
                    documents = torch.zeros(1, TOKENS // 8, dtype=torch.int32)
                    one_pass(context, rule=Rule(scaling=0.1, softcap=5.0), documents=documents)


def one_pass(context, *, rule, documents):
    shape = (1, 8, TOKENS // 8, 16)
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    sinks = torch.randn(8, dtype=torch.bfloat16, requires_grad=True)
    context = with_documents(context, documents)
    out = over_ranks(q, k, v, context=context, rule=rule, sinks=sinks)
    assert out.shape == shape
    grads = torch.autograd.grad(out.sum(), [q, k, v, sinks])
    assert [g.shape for g in grads] == [q.shape, k.shape, v.shape, sinks.shape]
