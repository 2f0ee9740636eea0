"""Which rows go where: the orders and counts of one dispatch.

A row is one (token, expert) pair. Rows are sorted by expert, and so by the rank that holds it;
receivers learn from an exchange of counts which of the rows they get is for which expert. Reading
the counts is the one time that the host waits for the device. Balanced routing needs neither: row i
goes to expert i modulo their number, whatever the router says, so that every shape is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass
from meshwright.train.parallel.experts.order import sorting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from meshwright.train.parallel.experts.order import Order


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The ranks among which a layer's experts are spread.

    `tp` is None where the ranks of a tensor-parallel group hold different tokens (or there is
    none), else the group that holds the same ones.
    """

    num_experts: int  # of the layer, over all ranks
    ep: ProcessGroup
    etp: ProcessGroup
    tp: ProcessGroup | None = None
    balanced: bool = False

    @property
    def local_experts(self) -> int:
        """Experts on one rank."""
        count: int = self.num_experts // self.ep.size()
        return count


@dataclass(frozen=True, kw_only=True)
class Routes:
    """One dispatch. `order` sorts this rank's rows by expert.

    `sent`, `received`: rows to and from each ep rank. `arrived` [sources, local experts]: rows
    that this rank's experts work on, by source (ep rank, inside etp rank). `gathered`: rows that
    each etp rank received.
    """

    order: Order
    sent: list[int]
    received: list[int]
    arrived: Tensor
    gathered: list[int]


def routes(experts: Tensor, crowd: Crowd) -> Routes:
    """The routes of the experts [tokens, k] chosen by this rank's tokens."""
    return _balanced(experts, crowd) if crowd.balanced else _learned(experts, crowd)


def balanced_choice(experts: Tensor, num_experts: int) -> Tensor:
    """Experts [tokens, k] of balanced routing: all take turns; k distinct ones for each token."""
    turns = torch.arange(experts.numel(), device=experts.device) % num_experts
    return turns.view(experts.shape)


def _learned(experts: Tensor, crowd: Crowd) -> Routes:
    chosen = experts.reshape(-1)
    counts = torch.zeros(crowd.num_experts, dtype=torch.long, device=experts.device)
    counts = counts.scatter_add_(0, chosen, torch.ones_like(chosen))
    counts = counts.view(crowd.ep.size(), crowd.local_experts)
    received = counts
    if crowd.ep.size() > 1:
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts, group=crowd.ep)
    arrived = received
    if crowd.etp.size() > 1:
        arrived = counts.new_empty((crowd.etp.size() * crowd.ep.size(), crowd.local_experts))
        dist.all_gather_single(arrived, received, group=crowd.etp)
    rows = torch.cat([counts, arrived]).sum(1).tolist()
    sent, by_source = rows[: crowd.ep.size()], rows[crowd.ep.size() :]
    blocks = [by_source[i : i + len(sent)] for i in range(0, len(by_source), len(sent))]
    return Routes(
        order=sorting(chosen),
        sent=sent,
        received=blocks[crowd.etp.rank()],
        arrived=arrived,
        gathered=[sum(block) for block in blocks],
    )


def _balanced(experts: Tensor, crowd: Crowd) -> Routes:
    """All ranks are taken to have as many rows as this one."""
    chosen = balanced_choice(experts, crowd.num_experts).reshape(-1)
    total, number = len(chosen), crowd.num_experts
    ep, local = crowd.ep.size(), crowd.local_experts
    counts = [(total + number - 1 - expert) // number for expert in range(number)]
    sent = [sum(counts[rank * local : (rank + 1) * local]) for rank in range(ep)]
    mine = crowd.ep.rank() * local
    numbers = torch.arange(mine, mine + local, device=experts.device)
    each = (total + number - 1 - numbers) // number
    received = [sent[crowd.ep.rank()]] * ep
    return Routes(
        order=sorting(chosen),
        sent=sent,
        received=received,
        arrived=each.expand(crowd.etp.size() * ep, local),
        gathered=[sum(received)] * crowd.etp.size(),
    )
