"""The most memory that this process has had, on the device that it trains on."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import device as Device  # noqa: N812

_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, getrusage(2)


def peak_bytes(device: Device) -> float:
    """What torch's allocator held at most on a GPU; the peak resident size of a CPU process."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT_BYTES)
