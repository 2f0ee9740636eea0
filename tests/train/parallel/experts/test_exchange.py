# ruff: noqa: E402 - torch is asked for before it is imported

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist

from meshwright.train.local import run_ranks
from meshwright.train.parallel.experts import exchange

COUNTS = [3, 0, 5]  # rows of each rank


def test_every_move_and_its_backward_on_uneven_and_empty_ranks():
    for rank in run_ranks(moves, 3):
        assert rank == dict.fromkeys(("swap", "gathered", "summed", "share", "joined"), True)


def moves() -> dict[str, bool]:
    group, rank = dist.group.WORLD, dist.get_rank()
    every = [torch.arange(n * 2.0).view(n, 2) + 100 * i for i, n in enumerate(COUNTS)]
    whole = torch.cat(every)
    mine = every[rank].clone().requires_grad_()
    return {
        "swap": swapped(group, rank),
        "gathered": _both(
            exchange.gathered(mine, COUNTS, group), mine, whole, whole, 3 * every[rank]
        ),
        "summed": summed(group, rank, whole),
        "share": share(group, rank, whole),
        "joined": joined(group, rank, whole),
    }


def _both(out, source, expected, slope, gradient) -> bool:
    """Whether the output is as expected, and the gradient of `source` under `slope`."""
    (got,) = torch.autograd.grad(out, source, slope)
    return torch.equal(out, expected) and torch.equal(got, gradient)


def swapped(group, rank) -> bool:
    """Rank r sends r + s rows to rank s; each row says where it comes from and goes to."""
    sent = [rank + other for other in range(3)]
    rows = torch.cat([torch.full((n, 1), 10.0 * rank + o) for o, n in enumerate(sent)])
    rows.requires_grad_()
    out = exchange.swap(rows, sent, [other + rank for other in range(3)], group)
    came = torch.cat([torch.full((o + rank, 1), 10.0 * o + rank) for o in range(3)])
    return _both(out, rows, came, came, rows.detach())  # what came goes back where it was


def summed(group, rank, whole) -> bool:
    rows = (whole * (rank + 1)).requires_grad_()
    out = exchange.summed(rows, COUNTS, group)
    part = whole.split(COUNTS)[rank]
    return _both(out, rows, 6 * part, part, whole)


def share(group, rank, whole) -> bool:
    rows = whole.clone().requires_grad_()
    part = whole.split(exchange.share_counts(len(whole), 3))[rank]
    return _both(exchange.share(rows, group), rows, part, part, whole)


def joined(group, rank, whole) -> bool:
    rows = whole.split(exchange.share_counts(len(whole), 3))[rank].clone().requires_grad_()
    return _both(exchange.joined(rows, len(whole), group), rows, whole, whole, rows.detach())
