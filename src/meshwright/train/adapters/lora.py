"""Low-rank adapters (LoRA, arXiv 2106.09685) by peft, put into a model on the meta device.

Source: peft 0.21, `inject_adapter_in_model`: every chosen linear layer becomes one that holds the
old one as `base_layer` beside `lora_A` and `lora_B`, dicts with one entry, "default". Canonical
names have neither "base_layer" nor "default": those of frozen weights are the model's own, and
those of adapters the ones that peft's files have.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import nn

from meshwright.base.errors import MeshwrightError
from meshwright.train.adapters.initialization import Operation, Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from meshwright.plan.plan import Plan

PACKAGE = "peft"
HINT = f"pip install {PACKAGE}"
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
SCALING = 2.0  # what is added is SCALING * B A: peft's lora_alpha is twice the rank


def is_here() -> bool:
    """Whether the library is installed; nothing is imported for it."""
    return find_spec(PACKAGE) is not None


def is_adapter(name: str) -> bool:
    """Whether a canonical name is that of an adapter's weight."""
    return name.endswith((DOWN, UP))


def apply(lm: Any, plan: Plan) -> None:
    """Gives the linear layers of a whole model adapters, and freezes all else.

    Those of attention, or with `lora_all_linear` also those of feed-forward networks; routers,
    fused experts, embedding and head have none. MeshwrightError without peft.
    """
    rank = int(plan.lora_rank)
    if not rank:
        return
    if not is_here():
        raise MeshwrightError("LoRA is peft's", hint=HINT)
    from peft import LoraConfig, inject_adapter_in_model

    layers = lm.model.layers  # of a whole model peft would rename experts to its own taste
    targets = _targets(layers, every=bool(plan.lora_all_linear))
    config = LoraConfig(r=rank, lora_alpha=SCALING * rank, target_modules=targets)
    inject_adapter_in_model(config, layers)
    for name, parameter in lm.named_parameters():
        parameter.requires_grad_(".lora_" in name)


def _targets(layers: nn.Module, *, every: bool) -> list[str]:
    """Full names of the linear layers that get adapters."""
    found = [name for name, module in layers.named_modules() if type(module) is nn.Linear]
    return found if every else [name for name in found if ".self_attn." in name]


def first_value(name: str, parameter: Tensor) -> Recipe:
    """How an adapter's weight starts: A as a linear layer's, B at zero (peft's own way)."""
    shape = tuple(parameter.shape)
    if name.endswith(UP):
        step = Operation(name="zero_", arguments=())
    else:
        bound = 1 / math.sqrt(shape[1])  # kaiming_uniform_(a=sqrt(5))
        step = Operation(name="uniform_", arguments=(-bound, bound))
    return Recipe(shape=shape, operations=(step,))


def adapters_of(name: str) -> tuple[str, str] | None:
    """Names of the adapter's two weights beside a weight, if it can have one."""
    if not name.endswith(".weight"):
        return None
    layer: Any = name.removesuffix(".weight")
    return layer + DOWN, layer + UP
