import itertools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from meshwright.plan.plan import ContextParallel, Plan  # noqa: E402
from meshwright.train.attention.context.making import context_of, with_documents  # noqa: E402
from meshwright.train.attention.context.methods import over_ranks  # noqa: E402
from meshwright.train.attention.core import in_order  # noqa: E402
from meshwright.train.attention.rule import Rule  # noqa: E402
from meshwright.train.attention.runs import runs_of  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.mesh import Mesh  # noqa: E402

F64 = torch.float64
TOKENS = 16
PIECES = ((0, 3, 4, 11, 16), (0, 16))
DOCUMENTS = torch.tensor([[0] * 3 + [1] + [2] * 7 + [-1] * 5, [0] * 16], dtype=torch.int32)

RULES = {
    "causal": Rule(scaling=0.4),
    "window": Rule(scaling=0.4, window=5),
    "softcap": Rule(scaling=0.4, softcap=2.0),
}
METHODS = list(ContextParallel)
SLICES = ("zigzag", "contiguous")


def whole(*, kv, v_dim=8):
    torch.manual_seed(3)
    q = torch.randn(2, 4, TOKENS, 8, dtype=F64)
    k = torch.randn(2, kv, TOKENS, 8, dtype=F64)
    v = torch.randn(2, kv, TOKENS, v_dim, dtype=F64)
    sinks, up = torch.randn(4, dtype=F64), torch.randn(2, 4, TOKENS, v_dim, dtype=F64)
    return [t.requires_grad_() for t in (q, k, v, sinks)], up


def cases():
    """Every pair of method, slices, rule and how documents are told; key-value heads by turns."""
    told = ("nothing", "host", "gathered", "mask")
    every = itertools.product(METHODS, SLICES, RULES.values(), told)
    for (method, slices, rule, how), kv in zip(every, itertools.cycle([1, 2, 4, 2, 1])):
        yield method, slices, rule, how, kv


def one_case(mesh, contexts, case):
    """The largest difference to one process of outputs and gradients."""
    method, slices, rule, told, kv = case
    leaves, up = whole(kv=kv, v_dim=4 if kv == 4 else 8)
    pieces = None if told == "nothing" else PIECES
    q, k, v, sinks = leaves
    given = sinks if kv != 1 else None
    expected, _ = in_order(q, k, v, rule=rule, sinks=given, pieces=pieces)
    wanted = torch.autograd.grad((expected * up).sum(), leaves, allow_unused=True)

    rank, size = mesh.rank("cp"), mesh.size("cp")
    runs = runs_of(slices, rank=rank, size=size, tokens=TOKENS // size)
    places = torch.cat([torch.arange(run.start, run.stop) for run in runs])
    documents = DOCUMENTS[:, places] if told == "gathered" else None
    context = contexts[method, slices]
    if told == "mask":
        context = replace(context, documents=DOCUMENTS)
    else:
        context = with_documents(context, documents, pieces=PIECES if told == "host" else None)
    local = [t[:, :, places] for t in (q, k, v)]
    out = over_ranks(*local, context=context, rule=rule, sinks=given)
    found = torch.autograd.grad((out * up[:, :, places]).sum(), leaves, allow_unused=True)
    worst = (out - expected[:, :, places]).abs().max()
    for one, other in zip(found, wanted, strict=True):
        if other is not None:
            dist.all_reduce(one)
            worst = torch.maximum(worst, (one - other).abs().max())
    return worst.item()


def all_cases(size):
    plan = Plan(cp=size, cp_inner=2)
    mesh = Mesh(plan, device_type="cpu")
    contexts = {
        (method, slices): context_of(
            mesh, plan.replace(context_parallel=int(method)), seq_len=TOKENS, slices=slices
        )
        for method in METHODS
        for slices in SLICES
    }
    return {case: one_case(mesh, contexts, case) for case in cases()}


@pytest.mark.parametrize("size", [2, 4])
def test_every_method_equals_one_process_with_gradients(size):
    for found in run_ranks(all_cases, size, size):
        assert max(found.values()) < 1e-12, max(found, key=found.get)
