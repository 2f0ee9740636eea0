"""AdamW with moments of 8 bits, from torchao, which need not be installed.

Source: torchao 0.15 to 0.18, torchao/optim: `AdamW8bit`, blocks of 256 with a scale each (arXiv
2110.02861). It takes DTensors as FSDP2 makes them; parameters of under 4096 elements keep fp32.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    import torch

    from meshwright.train.settings import Recipe

PACKAGE = "torchao"
HINT = f"pip install {PACKAGE}"


def is_here() -> bool:
    """Whether the library is installed; nothing is imported for it."""
    return find_spec(PACKAGE) is not None


def adamw(groups: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    """torchao's AdamW8bit over parameter groups; MeshwrightError where it is not installed."""
    if not is_here():
        raise MeshwrightError("AdamW with 8-bit states is torchao's", hint=HINT)
    from torchao.optim import AdamW8bit

    optimizer: torch.optim.Optimizer = AdamW8bit(
        groups,
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        eps=recipe.epsilon,
    )
    return optimizer
