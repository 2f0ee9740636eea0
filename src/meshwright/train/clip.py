"""The norm of all gradients over every mesh they lie on, and clipping by it.

torch's `clip_grad_norm_` refuses parameters of different meshes (pytorch issue 180346); here the
squares are summed locally, then over the ranks that hold other parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.train.model.share import part_of

TINY = 1e-6  # as torch.nn.utils.clip_grad_norm_ adds it

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.train.engine import Engine


def gradient_norm(engine: Engine) -> Tensor:
    """The 2-norm of the gradients of all parameters of the model, the same on every rank."""
    total = squares(engine)
    dist.all_reduce(total)
    return total.sqrt()


@torch.no_grad()
def squares(engine: Engine) -> Tensor:
    """This rank's share of the squared 2-norm of the gradients, a scalar.

    Each element counts once: of parameters that several ranks hold alike, a share of each is
    summed; a tied head on its own stage is the embedding's and is left out.
    """
    alike: dict[tuple[float, torch.device, torch.dtype], list[Tensor]] = {}
    for parameter, holders in engine.counted:
        if parameter.grad is not None:
            part = part_of(parameter.grad)
            alike.setdefault((holders, part.device, part.dtype), []).append(part)
    total = torch.zeros((), device=engine.device, dtype=engine.wide)
    for (holders, _, _), parts in alike.items():
        norms = torch.stack(torch._foreach_norm(parts, 2, engine.wide))
        total += norms.square().sum().to(engine.device) / holders
    return total


@torch.no_grad()
def clip(engine: Engine, norm: float, *, limit: float, scale: float = 1.0) -> None:
    """Scales gradients so that their norm is at most `limit` (0: no limit).

    `norm` is that of the gradients divided by `scale`, which is taken out too: the loss scale, and
    what they were divided by too little.
    """
    factor = (min(limit / (norm + TINY), 1.0) if limit > 0 else 1.0) / scale
    if factor == 1.0:
        return
    alike: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for _, parameter in engine.named_parameters():
        if parameter.grad is not None:
            part = part_of(parameter.grad)
            alike.setdefault((part.dtype, part.device), []).append(part)
    for parts in alike.values():
        torch._foreach_mul_(parts, factor)
