"""The norm of all gradients over every mesh they lie on, and clipping by it.

torch's `clip_grad_norm_` refuses parameters of different meshes (pytorch issue 180346); here the
squares are summed locally, then over the ranks that hold other parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from meshwright.train.engine import local
from meshwright.train.stage import HEAD, canonical_name

TINY = 1e-6  # as torch.nn.utils.clip_grad_norm_ adds it

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from meshwright.train.engine import Engine
    from meshwright.train.mesh import Mesh


def gradient_norm(engine: Engine) -> Tensor:
    """The 2-norm of the gradients of all parameters of the model, the same on every rank.

    Each element counts once: of parameters that several ranks hold alike, a share of each is
    summed; a tied head on its own stage is the embedding's and is left out.
    """
    total = torch.zeros((), device=engine.device, dtype=engine.wide)
    for parameter in _counted(engine):
        part = local(parameter.grad).to(engine.wide)
        total += part.square().sum() / _holders(parameter, engine.mesh)
    dist.all_reduce(total)
    return total.sqrt()


def clip(engine: Engine, norm: Tensor, *, limit: float, scale: float = 1.0) -> None:
    """Scales gradients so that their norm is at most `limit` (0: no limit).

    `norm` is that of the gradients divided by `scale`, the loss scale, which is taken out too.
    """
    if limit <= 0 and scale == 1.0:
        return
    factor = (limit / (norm + TINY)).clamp(max=1.0) if limit > 0 else torch.ones_like(norm)
    factor = factor / scale
    grads = [local(p.grad) for _, p in engine.named_parameters() if p.grad is not None]
    for dtype in {grad.dtype for grad in grads}:
        torch._foreach_mul_([g for g in grads if g.dtype is dtype], factor.to(dtype))


def _counted(engine: Engine) -> Iterator[nn.Parameter]:
    """Parameters with gradients, a tied head apart."""
    tied = bool(engine.blueprint.config.tie_word_embeddings)
    for stage in engine.stages:
        alone = tied and stage.place.is_last and not stage.place.is_first
        for name, parameter in stage.named_parameters():
            if parameter.grad is not None and not (alone and canonical_name(name) == HEAD):
                yield parameter


def _holders(parameter: nn.Parameter, mesh: Mesh) -> float:
    """Ranks of the parameter's pipeline stage that hold the same part of it."""
    ranks = mesh.degrees.world_size / mesh.degrees.pp
    if not isinstance(parameter, DTensor):
        return ranks
    parts = 1
    for size, placement in zip(parameter.device_mesh.shape, parameter.placements, strict=True):
        parts *= 1 if isinstance(placement, Replicate) else size
    return ranks / parts
