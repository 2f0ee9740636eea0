"""What FSDP2 holds gathered and unreduced (torch 2.13, private state of fully_shard)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.fsdp import FSDPModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def gathered_parameters(module: nn.Module) -> Iterator[Any]:
    """The tensors that FSDP2 gathers parameters into; their storages are empty between uses."""
    for group in _groups(module):
        for parameter in group.fsdp_params:
            yield from parameter.all_gather_outputs


def waiting_gradients(module: nn.Module) -> Iterator[Any]:
    """Whole gradients of earlier micro-batches that wait for a later reduction.

    They are in the format of the reduction, or where that is the same in the parameter's `grad`.
    """
    for group in _groups(module):
        if group.reduce_grads:
            continue
        for parameter in group.fsdp_params:
            if parameter.unsharded_accumulated_grad is not None:
                yield parameter.unsharded_accumulated_grad
            elif parameter.reduce_dtype in (None, parameter.param_dtype):
                gradient = getattr(parameter, "_unsharded_param", None)
                if gradient is not None and gradient.grad is not None:
                    yield gradient.grad


def _groups(module: nn.Module) -> Iterator[Any]:
    for inner in module.modules():
        if isinstance(inner, FSDPModule):
            yield from inner._get_fsdp_state()._fsdp_param_groups
