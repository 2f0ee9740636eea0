"""float32 islands: what transformers' models compute in float32 whatever their parameters are.

Norms, softmax, routers and rotary tables are cast to float32 inside many families. Between two ways
of computing the same in float64 such a cast turns a difference of 1e-16 into one of 1e-8 now and
then. `wide` lifts these casts to float64, in the reference and in the plan alike, so that what is
left is the plan's own error. So it does with bfloat16, in which Muon makes matrices orthogonal.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def wide() -> Iterator[None]:
    """Within, whoever asks torch for float32 by name gets float64, in the backward pass too.

    A tensor that is asked for itself as `.float()` or `.bfloat16()` gives float64 as well.

    It changes names of the module torch, so it is for short-lived ranks and the reference alone; a
    `TorchFunctionMode` would be out of force while a backward pass recomputes.
    """
    names = {"float32": torch.float32, "float": torch.float}
    narrow, half = torch.Tensor.float, torch.Tensor.bfloat16
    try:
        for name in names:
            setattr(torch, name, torch.float64)
        torch.Tensor.float = torch.Tensor.bfloat16 = torch.Tensor.double
        yield
    finally:
        for name, dtype in names.items():
            setattr(torch, name, dtype)
        torch.Tensor.float, torch.Tensor.bfloat16 = narrow, half
