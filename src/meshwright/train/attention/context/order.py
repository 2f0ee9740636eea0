"""Tokens that lie rank by rank, put in the order of the row and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from meshwright.train.attention.runs import order_of

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.attention.context import Context
    from meshwright.train.attention.runs import Run


def in_row_order(tensor: Tensor, runs: tuple[Run, ...], *, dim: int) -> Tensor:
    """The tokens along `dim`, which lie run by run, sorted by their place in the row."""
    order = order_of(runs)
    if order == tuple(sorted(order)):
        return tensor
    return torch.cat([tensor.narrow(dim, a, b - a) for a, b in order], dim)


def in_run_order(tensor: Tensor, runs: tuple[Run, ...], *, dim: int) -> Tensor:
    """The reverse: tokens of whole rows as the runs have them."""
    if list(runs) == sorted(runs, key=lambda run: run.start):
        return tensor
    return at_runs(tensor, runs, dim=dim)


def at_runs(tensor: Tensor, runs: tuple[Run, ...], *, dim: int) -> Tensor:
    """Of whole rows the tokens of these runs, run by run."""
    parts = [tensor.narrow(dim, run.start, len(run)) for run in runs]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def documents_of(
    context: Context, queries: tuple[Run, ...], keys: tuple[Run, ...]
) -> tuple[Tensor, Tensor] | None:
    """Documents of queries and keys, None where the host's pieces tell or rows hold one each."""
    whole = context.documents
    if whole is None or context.pieces is not None:
        return None
    return at_runs(whole, queries, dim=1), at_runs(whole, keys, dim=1)
