"""Learning rate over steps, as a share of its peak."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.train.settings import Recipe


def rate(recipe: Recipe, *, step: int, steps: int) -> float:
    """The share of the peak learning rate for update `step` (from 0) of `steps`.

    Warm-up is linear from 1 / (warmup_steps + 1). Cosine and linear reach `min_lr_ratio` at the
    last update; wsd is steady and then falls linearly over the last `decay_steps`.
    """
    if step < recipe.warmup_steps:
        return (step + 1) / (recipe.warmup_steps + 1)
    low = recipe.min_lr_ratio
    if recipe.schedule == "constant":
        return 1.0
    if recipe.schedule == "wsd":
        into = step - (steps - 1 - recipe.decay_steps)
        done = into / recipe.decay_steps if recipe.decay_steps else 0.0
        return 1.0 - (1.0 - low) * min(max(done, 0.0), 1.0)
    done = (step - recipe.warmup_steps) / max(steps - 1 - recipe.warmup_steps, 1)
    done = min(done, 1.0)
    if recipe.schedule == "linear":
        return 1.0 - (1.0 - low) * done
    return low + (1.0 - low) * 0.5 * (1.0 + math.cos(math.pi * done))
