"""In which number formats a run keeps, computes and reduces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from meshwright.base.noun import dataclass
from meshwright.plan.plan import Precision

if TYPE_CHECKING:
    from meshwright.plan.plan import Plan

_COMPUTE = {
    Precision.FP32: torch.float32,
    Precision.BF16: torch.bfloat16,
    Precision.FP16: torch.float16,
    Precision.FP8: torch.bfloat16,  # matrix products alone are in fp8
}
_BYTES = {1: torch.bfloat16, 2: torch.bfloat16, 4: torch.float32, 8: torch.float64}


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """`parameters` is what the optimizer updates, `compute` what layers run in, `reduce` the wire.

    `fp8` marks matrix products in 8 bits; `scaled` a loss scaler, which fp16 needs.
    """

    parameters: torch.dtype
    compute: torch.dtype
    reduce: torch.dtype
    fp8: bool = False

    @property
    def scaled(self) -> bool:
        """Whether gradients may underflow without a loss scale."""
        return self.compute is torch.float16

    @property
    def mixed(self) -> bool:
        """Whether layers run in another format than the one parameters are kept in."""
        return self.compute is not self.parameters or self.reduce is not self.parameters


def numbers_of(plan: Plan) -> Numbers:
    """The formats of a plan: master weights are the sharded fp32 parameters themselves (FSDP2)."""
    precision = Precision(int(plan.precision))
    compute = _COMPUTE.get(precision, torch.bfloat16)
    if precision == Precision.FP32:
        return Numbers(parameters=torch.float32, compute=torch.float32, reduce=torch.float32)
    parameters = torch.float32 if plan.master_weights or plan.param_bytes == 4 else compute
    reduce = compute if int(plan.reduce_bytes) == 2 else _BYTES[int(plan.reduce_bytes)]
    return Numbers(
        parameters=parameters, compute=compute, reduce=reduce, fp8=precision == Precision.FP8
    )


def uniform(dtype: torch.dtype) -> Numbers:
    """One format for everything; float64 is what `verify` compares in."""
    return Numbers(parameters=dtype, compute=dtype, reduce=dtype)
