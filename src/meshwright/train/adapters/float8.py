"""Matrix products in fp8, by torchao's float8 training, which need not be installed.

Source: torchao 0.18, torchao/float8: `convert_to_float8_training` puts `Float8Linear` in the place
of linear layers, which keep their weights and names; scales are per tensor and made anew in every
product. Sizes must divide by 16. fp8 products need compute capability 8.9 (Ada, Hopper and later);
`emulate` computes the same roundings in the wide format anywhere, slowly, for tests.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding

if TYPE_CHECKING:
    from meshwright.train.stage import Stage

PACKAGE = "torchao"
HINT = f"pip install {PACKAGE}"
MULTIPLE = 16
CAPABILITY = (8, 9)


def is_here() -> bool:
    """Whether the library is installed; nothing is imported for it."""
    return find_spec(PACKAGE) is not None


def apply(stage: Stage, *, device_type: str, emulate: bool = False) -> None:
    """Has the linear layers of a stage's decoder layers multiply in fp8.

    Embedding, head, routers and fused experts stay as they are. InvalidInput where the device has
    no fp8 products, MeshwrightError without torchao.
    """
    if not is_here():
        raise MeshwrightError("products in fp8 are torchao's", hint=HINT)
    if not emulate and not has_products(device_type):
        message = "this device has no products in fp8: they need compute capability 8.9"
        finding = Finding(
            message=message, key="plan.precision", value="fp8", hint='plan.precision = "bf16"'
        )
        raise InvalidInput([finding])
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig(emulate=emulate)
    for layer in stage.layers:
        convert_to_float8_training(layer, config=config, module_filter_fn=_fits)


def has_products(device_type: str) -> bool:
    """Whether the device of this rank multiplies in fp8."""
    return device_type == "cuda" and torch.cuda.get_device_capability() >= CAPABILITY


def _fits(module: Any, _name: str) -> bool:
    """Whether a module is a plain linear layer of sizes that fp8 products take."""
    if type(module) is not nn.Linear:
        return False
    return not (module.in_features % MULTIPLE or module.out_features % MULTIPLE)
