"""Muon: the momentum of every matrix, made orthogonal, as its update (arXiv 2502.16982).

Momentum is kept where the parameter lies. Orthogonalizing needs whole matrices: where one is cut,
its parts travel in bf16 to one of the ranks that hold them, which does the work alone and sends the
parts back (`matrices`). So each matrix is worked on once, the work is spread over the ranks of a
pipeline stage, and the update is that of one process to the last bit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from meshwright.train.model.share import part_of
from meshwright.train.optimizer.matrices import Exchange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Keller Jordan's, as in torch.optim.Muon (torch 2.13)
STEPS, EPSILON = 5, 1e-7
RMS = 0.2  # of an update under AdamW (arXiv 2502.16982, equation 4)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon(adjust_lr_fn="match_rms_adamw") over parameters cut in any way.

    Parameters are matrices, or stacks of them ([experts, rows, columns]) that are taken one by one.
    Learning rates are those of AdamW. `ranks` is the group of all that hold parts of them; each of
    its ranks makes one with the same parameters in the same order, and steps when all do.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        momentum: float,
        ranks: Any,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__([{"params": list(params)}], defaults)
        self._ranks = ranks
        self._exchange: Exchange | None = None

    @torch.no_grad()
    def step(self) -> None:
        """Updates every parameter; one without a gradient here counts as if that were zero."""
        (group,) = self.param_groups
        parameters = group["params"]
        if self._exchange is None:
            self._exchange = Exchange(parameters, ranks=self._ranks)
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        updates = [self._direction(p, group["momentum"]) for p in parameters]
        self._exchange.apply(orthogonal, updates)
        lr, decay = float(group["lr"]), group["weight_decay"]
        for parameter, update in zip(parameters, updates, strict=True):
            part = part_of(parameter)
            rate = lr * RMS * math.sqrt(max(parameter.shape[-2:]))
            part.mul_(1 - lr * decay).add_(update, alpha=-rate)

    def _direction(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """This rank's part of Nesterov's momentum, in bf16."""
        kept = part_of(self.state[parameter]["momentum_buffer"])
        if parameter.grad is None:
            kept.mul_(momentum)
            return (kept * momentum).bfloat16()
        gradient = part_of(parameter.grad)
        kept.lerp_(gradient, 1 - momentum)
        return gradient.lerp(kept, momentum).bfloat16()


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrix of each in [..., rows, columns], roughly.

    Five steps of a quintic Newton-Schulz iteration (kellerjordan.github.io/posts/muon), in the
    format of its argument; singular values come out between 0.5 and 1.5.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices
    x = x / x.flatten(-2).norm(dim=-1)[..., None, None].clamp(min=EPSILON)
    add = torch.addmm if x.ndim == 2 else torch.baddbmm
    for _ in range(STEPS):
        gram = x @ x.mT
        x = add(x, add(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x
