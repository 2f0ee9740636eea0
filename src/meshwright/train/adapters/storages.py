"""The memory behind tensors of every kind, and how FSDP resizes it (torch 2.13).

A DTensor's memory is that of its local part, an asynchronous result's that of what it wraps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def storage_of(tensor: Any) -> Any | None:
    """The storage that holds a tensor on this rank; None where it has no memory of its own."""
    tensor = getattr(tensor, "_local_tensor", tensor)
    if type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.elem
    if tensor.device.type == "meta" and type(tensor) is torch.Tensor:
        return None
    return tensor.untyped_storage()


def key_of(storage: Any) -> int:
    """What tells a live storage from every other."""
    key: int = storage._cdata
    return key


@contextmanager
def watched_resizes(resized: Callable[[Any], None]) -> Iterator[None]:
    """Calls `resized(storage)` after a storage has got another size."""
    original = torch.UntypedStorage.resize_

    def resize_(storage: Any, size: int) -> None:
        original(storage, size)
        resized(storage)

    torch.UntypedStorage.resize_ = resize_
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = original
