"""Backward passes as pipelines and recomputation ask for them: in halves, and again."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.pipelining._backward import (  # noqa: E402
    stage_backward_input,
    stage_backward_weight,
)
from torch.utils.checkpoint import checkpoint  # noqa: E402

from meshwright.plan.plan import ContextParallel, Plan  # noqa: E402
from meshwright.train.attention.context.making import context_of  # noqa: E402
from meshwright.train.attention.function import attention  # noqa: E402
from meshwright.train.local import run_ranks  # noqa: E402
from meshwright.train.mesh import Mesh  # noqa: E402
from meshwright.train.span import Span  # noqa: E402

TOKENS, HEADS, SIZE = 16, 4, 8
CALLS = ("all_gather_single", "reduce_scatter_single", "all_to_all_single", "batch_isend_irecv")


class Layer(nn.Module):
    """Attention with projections and sinks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.qkv = nn.Linear(8, 3 * HEADS * SIZE, dtype=torch.float64)
        self.out = nn.Linear(HEADS * SIZE, 8, dtype=torch.float64)
        self.sinks = nn.Parameter(torch.randn(HEADS, dtype=torch.float64))

    def forward(self, x, span=None):
        heads = self.qkv(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        q, k, v = heads.chunk(3, -1)
        out, _ = attention(self, q, k, v, None, s_aux=self.sinks, span=span)
        return x + self.out(out.flatten(2))


class Counted:
    """How often this rank has called collectives."""

    def __init__(self, patch):
        self.calls = 0
        for name in CALLS:
            patch.setattr(dist, name, partial(self._call, getattr(dist, name)))

    def _call(self, real, *tensors, **keywords):
        self.calls += 1
        return real(*tensors, **keywords)


def halves(layers, x, span, counted):
    """Gradients by the input's half first, then the weights'; collectives of each half."""
    for layer in layers[:-1]:
        x = layer(x, span)
    out = layers[-1](x, span)
    start = counted.calls
    grads, groups = stage_backward_input(
        [out.sum()], [torch.ones((), dtype=out.dtype)], [x], iter(layers[-1].parameters())
    )
    middle = counted.calls
    stage_backward_weight(iter(layers[-1].parameters()), groups)
    return grads[0], middle - start, counted.calls - middle


def recomputed(layers, x, span):
    for layer in layers:
        x = checkpoint(layer, x, span, use_reentrant=False)
    x.sum().backward()


def all_cases():
    mesh = Mesh(Plan(cp=2, cp_inner=2), device_type="cpu")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch)
        for method in ContextParallel:
            plan = Plan(cp=2, cp_inner=2, context_parallel=int(method))
            context = context_of(mesh, plan, seq_len=TOKENS)
            places = torch.cat([torch.arange(r.start, r.stop) for r in context.runs[context.rank]])
            found[method.name] = one_case(places, Span(positions=places, context=context), counted)
    return found


def one_case(places, span, counted):
    torch.manual_seed(1)
    rows = torch.randn(2, TOKENS, 8, dtype=torch.float64)
    reference = [Layer(), Layer()]
    whole = rows.clone().requires_grad_()
    middle = reference[0](whole)
    middle.retain_grad()
    reference[1](middle).sum().backward()

    again = [Layer(), Layer()]
    recomputed(again, rows[:, places].requires_grad_(), span)
    split = [Layer(), Layer()]
    split[0].requires_grad_(False)
    x = split[0](rows[:, places], span).detach().requires_grad_()
    grad, *calls = halves([split[1]], x, span, counted)
    worst = [(grad - middle.grad[:, places]).abs().max()]
    for ours, theirs in (
        (again[0], reference[0]),
        (again[1], reference[1]),
        (split[1], reference[1]),
    ):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            dist.all_reduce(one.grad)
            worst.append((one.grad - other.grad).abs().max())
    return max(worst).item(), calls


def test_halves_and_recomputation_give_the_gradients_of_one_process():
    for found in run_ranks(all_cases, 2, timeout_s=120):
        assert len(found) == 4
        for name, (worst, (inputs, weights)) in found.items():
            assert worst < 1e-12, name
            assert (inputs > 0, weights) == (True, 0), f"{name} sends again for the weights"
