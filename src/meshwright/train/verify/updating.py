"""The optimizers of the reference: torch's own, on whole matrices in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from meshwright.plan.plan import Optimizer
from meshwright.train.optimizer.roles import decays, is_hidden_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

LEARNING_RATE, WEIGHT_DECAY, MOMENTUM = 1e-3, 0.1, 0.9
BETAS, EPSILON = (0.9, 0.95), 1e-8


class Updates:
    """Steps of the optimizer `kind` over a whole model; 8-bit Adam is taken for Adam."""

    def __init__(self, lm: nn.Module, kind: Optimizer) -> None:
        named = [(n, p) for n, p in lm.named_parameters() if p.requires_grad]
        self._named = named
        self._slices: list[tuple[nn.Parameter, nn.Parameter, int]] = []
        if kind is Optimizer.MUON:
            hidden = [p for n, p in named if is_hidden_matrix(n, p)]
            rest = [(n, p) for n, p in named if not is_hidden_matrix(n, p)]
            self._parts: list[Any] = [self._muon(hidden), _adamw(_groups(rest))]
        else:
            self._parts = [_MAKING.get(kind, _adamw)(_groups(named))]

    def step(self) -> None:
        """Updates the parameters and forgets their gradients."""
        for part, whole, index in self._slices:
            part.grad = whole.grad[index] if whole.grad is not None else None
        for optimizer in self._parts:
            optimizer.step()
        for _, parameter in self._named:
            parameter.grad = None

    def _muon(self, hidden: list[nn.Parameter]) -> torch.optim.Optimizer:
        """torch's Muon takes matrices alone: of stacked experts each one is a view."""
        return torch.optim.Muon(
            list(self._matrices(hidden)),
            lr=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            momentum=MOMENTUM,
            adjust_lr_fn="match_rms_adamw",
        )

    def _matrices(self, hidden: list[nn.Parameter]) -> Iterator[nn.Parameter]:
        for parameter in hidden:
            if parameter.ndim == 2:
                yield parameter
                continue
            for index in range(len(parameter)):
                view = torch.nn.Parameter(parameter.data[index])
                self._slices.append((view, parameter, index))
                yield view


def _groups(named: list[tuple[str, nn.Parameter]]) -> list[dict[str, Any]]:
    """Matrices decay, vectors do not."""
    return [
        {"params": [p for n, p in named if decays(n, p)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0},
    ]


def _adamw(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON)


def _adafactor(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.Adafactor(groups, lr=LEARNING_RATE)


def _sgd(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=LEARNING_RATE)


def _sgd_momentum(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=LEARNING_RATE, momentum=MOMENTUM)


_MAKING = {
    Optimizer.ADAFACTOR: _adafactor,
    Optimizer.SGD: _sgd,
    Optimizer.SGD_MOMENTUM: _sgd_momentum,
}
