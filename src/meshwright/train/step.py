"""One optimizer step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.base.noun import dataclass
from meshwright.data.loader.batch import IGNORED
from meshwright.train.clip import clip, squares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from meshwright.train.engine import Engine
    from meshwright.train.optimizer import Optimizers


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step came to, the same on every rank.

    `loss` is the mean over the labels that count, `tokens` their number, `norm` that of the
    gradients before clipping. `updated` is False where they were no numbers and were thrown away.
    `loss_scale` is what the loss was multiplied by (fp16), 1 in other formats.
    """

    loss: float
    norm: float
    tokens: int
    updated: bool
    loss_scale: float = 1.0

    @property
    def overflowed(self) -> bool:
        """Whether the loss scale alone was too large, which is halved then."""
        return not self.updated and self.loss_scale > 1 and math.isfinite(self.loss)


def train_step(
    engine: Engine,
    optimizers: Optimizers,
    micro_batches: Sequence[dict[str, Tensor]],
    *,
    clip_norm: float,
) -> Outcome:
    """Gradients of the global batch, clipped, applied; skipped where they are not finite.

    How many labels count is known to all ranks only afterwards, with the loss and the norm: one
    exchange a step. Until then gradients are divided by the number of all positions.
    """
    positions, scale = positions_of(engine, micro_batches), optimizers.loss_scale
    share = engine.forward_backward(micro_batches, tokens=positions, loss_scale=scale)
    labels = counted(engine, micro_batches)
    told = agreed(engine, share, labels=labels, square=squares(engine))
    loss, count, square = told.tolist()
    tokens = max(round(count), 1)
    loss, scale_taken = loss * positions / tokens, scale * tokens / positions
    norm = math.sqrt(square) / scale_taken if square >= 0 else math.nan
    finite = math.isfinite(norm) and math.isfinite(loss)
    if finite:
        clip(engine, norm, limit=clip_norm, scale=scale_taken)
        optimizers.step()
    optimizers.after(finite=finite)
    optimizers.zero_grad()
    return Outcome(loss=loss, norm=norm, tokens=round(count), updated=finite, loss_scale=scale)


def positions_of(engine: Engine, micro_batches: Sequence[dict[str, Tensor]]) -> int:
    """Places for labels in the global batch, whether they count or not."""
    rows = len(micro_batches) * int(engine.plan.micro_batch_size) * engine.mesh.dp_size
    return rows * engine.blueprint.seq_len


def counted(engine: Engine, micro_batches: Sequence[dict[str, Tensor]]) -> Tensor:
    """Labels of this rank that count, none where there is no loss; a scalar on the device."""
    mine = torch.zeros((), device=engine.device, dtype=torch.float64)
    if engine.is_last:
        for batch in micro_batches:
            mine += (batch["labels"] != IGNORED).sum()
    return mine


def agreed(engine: Engine, loss: Tensor, *, labels: Tensor, square: Tensor) -> Tensor:
    """Loss, labels and squared norm over all ranks from the shares of each: [3], float64."""
    alike = engine.mesh.size("tp")  # ranks that have the same labels and loss
    shares = torch.stack(
        [part.to(torch.float64) for part in (loss / alike, labels / alike, square)]
    )
    if dist.get_world_size() > 1:
        dist.all_reduce(shares)
    return shares


def summed(engine: Engine, share: Tensor) -> Tensor:
    """A share of the loss over all ranks."""
    return _over_batch(engine, share.clone())


def _over_batch(engine: Engine, share: Tensor) -> Tensor:
    """The sum over ranks that see other tokens and over the pipeline, tp counted once."""
    dist.all_reduce(share)
    return share / engine.mesh.size("tp")
