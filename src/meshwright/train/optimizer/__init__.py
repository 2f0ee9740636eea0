"""Optimizers over the parameters of an engine, and the learning rate over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn

    from meshwright.train.engine import Engine
    from meshwright.train.settings import Recipe


class Optimizers:
    """One or several torch optimizers that together update every trainable parameter."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        self.loss_scale = 1.0  # fp16's; others need none
        self._peaks = [[group["lr"] for group in part.param_groups] for part in parts]

    def step(self) -> None:
        """Updates parameters by their gradients."""
        for part in self.parts:
            part.step()

    def after(self, *, finite: bool) -> None:
        """Takes note of whether the gradients of a step were finite."""

    def zero_grad(self) -> None:
        """Forgets gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def scale_learning_rate(self, factor: float) -> None:
        """Sets every group's learning rate to `factor` times its peak."""
        for part, peaks in zip(self.parts, self._peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * factor


def build(engine: Engine, recipe: Recipe) -> Optimizers:
    """The plan's optimizer; matrices decay, norms and biases do not."""
    decayed, plain = _split([p for _, p in engine.named_parameters() if p.requires_grad])
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.epsilon,
    )
    return Optimizers([adam])


def _split(parameters: list[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices, and vectors."""
    decayed = [p for p in parameters if p.ndim > 1]
    return decayed, [p for p in parameters if p.ndim <= 1]
