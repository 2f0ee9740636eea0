"""What FSDP2 holds gathered, and for how many bytes (torch 2.13, private state of fully_shard)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.fsdp import FSDPModule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def gathered_parameters(module: nn.Module) -> Iterator[Any]:
    """The tensors that FSDP2 gathers parameters into; their storages are empty between uses."""
    for inner in module.modules():
        if isinstance(inner, FSDPModule):
            for group in inner._get_fsdp_state()._fsdp_param_groups:
                for parameter in group.fsdp_params:
                    yield from parameter.all_gather_outputs
