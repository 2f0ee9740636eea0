"""Each optimizer of a plan from the parameters of a rank: which of them it updates, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from meshwright.plan.plan import Optimizer
from meshwright.train.optimizer.adafactor import Adafactor
from meshwright.train.optimizer.muon import Muon
from meshwright.train.optimizer.roles import decays, is_hidden_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from meshwright.train.engine import Engine
    from meshwright.train.settings import Recipe

    Named = list[tuple[str, nn.Parameter]]
    Made = list[torch.optim.Optimizer]


def groups_of(named: Named, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameter groups: those that decay apart, and those of every mesh apart.

    torch updates many tensors in one kernel only if they lie on the same mesh.
    """
    found: dict[tuple[bool, Any], list[nn.Parameter]] = {}
    for name, parameter in named:
        key = (decays(name, parameter), getattr(parameter, "device_mesh", None))
        found.setdefault(key, []).append(parameter)
    return [
        {"params": parameters, "weight_decay": recipe.weight_decay if decayed else 0.0}
        for (decayed, _), parameters in found.items()
    ]


def _adamw(named: Named, recipe: Recipe, _: Engine | None = None) -> Made:
    """AdamW (arXiv 1711.05101) in torch's fused kernel: also on a CPU the fastest of its ways."""
    if not named:
        return []
    return [
        torch.optim.AdamW(
            groups_of(named, recipe),
            lr=recipe.learning_rate,
            betas=(recipe.beta1, recipe.beta2),
            eps=recipe.epsilon,
            fused=True,
        )
    ]


def _muon(named: Named, recipe: Recipe, engine: Engine) -> Made:
    """Muon for the matrices of layers, AdamW for all else."""
    matrices = [(n, p) for n, p in named if is_hidden_matrix(n, p)]
    others = [(n, p) for n, p in named if not is_hidden_matrix(n, p)]
    muon = Muon(
        [p for _, p in matrices],
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        momentum=recipe.momentum,
        ranks=engine.mesh.group("stage"),
    )
    return [muon, *_adamw(others, recipe)]


def _adafactor(named: Named, recipe: Recipe, _: Engine) -> Made:
    return [Adafactor(groups_of(named, recipe), lr=recipe.learning_rate)]


def _sgd(named: Named, recipe: Recipe, _: Engine) -> Made:
    return [torch.optim.SGD(groups_of(named, recipe), lr=recipe.learning_rate)]


def _sgd_momentum(named: Named, recipe: Recipe, _: Engine) -> Made:
    groups = groups_of(named, recipe)
    return [torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=recipe.momentum)]


def _adam_8bit(named: Named, recipe: Recipe, _: Engine) -> Made:
    from meshwright.train.adapters.eight_bit import adamw

    return [adamw(groups_of(named, recipe), recipe)]


PARTS: Mapping[Optimizer, Callable[[Named, Recipe, Engine], Made]] = {
    Optimizer.ADAM: _adamw,
    Optimizer.ADAM_8BIT: _adam_8bit,
    Optimizer.ADAFACTOR: _adafactor,
    Optimizer.MUON: _muon,
    Optimizer.SGD: _sgd,
    Optimizer.SGD_MOMENTUM: _sgd_momentum,
}
