"""Saved activations on the host: what the backward pass of a layer needs, copied out and back.

Tensors that autograd saves inside a layer leave the device as they are saved and come back one by
one as they are used, so that of all covered layers together the device holds no more than what one
layer needs at a time. Weights are saved by products too: these stay where they are, for a copy of
each would cost more than it saves, and FSDP2 gathers them itself. Copies run on the stream of the
computation, in pinned memory; they are not hidden behind it.
"""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from meshwright.train.adapters.storages import key_of, storage_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    Moved = tuple[Any, Tensor]  # the device that a tensor was on, and its copy


def apply(layers: Sequence[nn.Module], *, share: float) -> None:
    """Has the first layers, a `share` of all (rounded up), keep what they save on the host."""
    for layer in layers[: ceil(share * len(layers))]:
        layer.forward = partial(_kept_on_host, layer, layer.forward)


def _kept_on_host(layer: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    """`forward` with everything that it saves on the host, weights apart."""
    with saved_tensors_hooks(partial(_out, layer), _back):
        return forward(*args, **kwargs)


def _out(layer: nn.Module, tensor: Tensor) -> Tensor | Moved:
    """What is kept in the place of a saved tensor: itself, or its device and a copy.

    Weights are looked up each time: those of experts are gathered inside the layer, and let go of.
    """
    mine = _storage(tensor)
    if any(_storage(held) == mine for held in (*layer.parameters(), *layer.buffers())):
        return tensor
    pinned = tensor.device.type != "cpu"
    copy = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
    return tensor.device, copy.copy_(tensor, non_blocking=pinned)


def _back(packed: Tensor | Moved) -> Tensor:
    """The saved tensor where it was."""
    if not isinstance(packed, tuple):
        return packed
    device, copy = packed
    back: Tensor = copy.to(device, non_blocking=True)
    return back


def _storage(tensor: Any) -> int:
    """Which memory a tensor lies in."""
    return key_of(storage_of(tensor))
