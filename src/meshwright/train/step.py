"""One optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass
from meshwright.train.clip import clip, gradient_norm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from meshwright.train.engine import Engine
    from meshwright.train.optimizer import Optimizers

IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step came to, the same on every rank.

    `loss` is the mean over the labels that count, `tokens` their number, `norm` that of the
    gradients before clipping. `updated` is False where they were no numbers and were thrown away.
    """

    loss: float
    norm: float
    tokens: int
    updated: bool


def train_step(
    engine: Engine,
    optimizers: Optimizers,
    micro_batches: Sequence[dict[str, Tensor]],
    *,
    clip_norm: float,
) -> Outcome:
    """Gradients of the global batch, clipped, applied; skipped where they are not finite."""
    tokens = counted(engine, micro_batches)
    scale = optimizers.loss_scale
    loss = engine.forward_backward(micro_batches, tokens=max(tokens, 1), loss_scale=scale)
    norm = gradient_norm(engine) / scale
    value = summed(engine, loss)
    finite = bool(torch.isfinite(norm)) and bool(torch.isfinite(value))
    if finite:
        clip(engine, norm, limit=clip_norm, scale=scale)
        optimizers.step()
    optimizers.after(finite=finite)
    optimizers.zero_grad()
    return Outcome(loss=float(value), norm=float(norm), tokens=tokens, updated=finite)


def counted(engine: Engine, micro_batches: Sequence[dict[str, Tensor]]) -> int:
    """Labels that count in the global batch, over all ranks."""
    mine = torch.zeros((), device=engine.device, dtype=torch.float64)
    if engine.is_last:
        mine += sum(int((batch["labels"] != IGNORED).sum()) for batch in micro_batches)
    return round(float(_over_batch(engine, mine)))


def summed(engine: Engine, share: Tensor) -> Tensor:
    """A share of the loss over all ranks."""
    return _over_batch(engine, share.clone())


def _over_batch(engine: Engine, share: Tensor) -> Tensor:
    """The sum over ranks that see other tokens and over the pipeline, tp counted once."""
    dist.all_reduce(share)
    return share / engine.mesh.size("tp")
