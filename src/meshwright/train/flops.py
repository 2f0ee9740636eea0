"""Model FLOPs of a run, and the share of the device's peak that they reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.train.settings import Expected


def utilization(
    expected: Expected | None, *, tokens: int, seconds: float, devices: int
) -> float | None:
    """Model FLOPs of so many tokens over what the devices could do meanwhile, 0 to 1.

    MFU as PaLM defines it (arXiv 2204.02311, appendix B), by the convention of `expected`. None
    where the peak of the device is not known.
    """
    if expected is None or not expected.peak_flops or seconds <= 0:
        return None
    return expected.flops_per_token * tokens / (seconds * devices * expected.peak_flops)
