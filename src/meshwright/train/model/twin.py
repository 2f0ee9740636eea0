"""The whole model on the meta device: names and shapes of everything, and no memory."""

from __future__ import annotations

import copy
from typing import Any

import torch

from meshwright.train.model.configuration import model_of


def twin_of(config: Any, *, dtype: torch.dtype = torch.float32) -> Any:
    """The transformers model of a configuration, none of its values there."""
    plain = copy.deepcopy(config)
    plain._attn_implementation = "eager"
    with torch.device("meta"):
        return model_of(plain, dtype=dtype)
