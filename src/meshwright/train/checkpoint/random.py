"""States of random number generators, which only dropout draws from while training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from meshwright.train.checkpoint.state import RANDOM

if TYPE_CHECKING:
    from torch import Tensor


def random_state() -> dict[str, Tensor]:
    """This rank's generators, under its number."""
    rank = dist.get_rank()
    states = {f"{RANDOM}{rank}/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states[f"{RANDOM}{rank}/cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(states: dict[str, Tensor]) -> None:
    """Sets this rank's generators to what `random_state` gave."""
    for name, state in states.items():
        if name.endswith("/cuda"):
            torch.cuda.set_rng_state(state)
        else:
            torch.set_rng_state(state)
