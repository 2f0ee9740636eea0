"""What a pipeline's idle time would be with even stages and free transfers."""

from __future__ import annotations


def ideal_bubble(p: int, m: int, v: int = 1) -> float:
    """Share of the step, 0 to 1, in which a stage of 1F1B waits: (p - 1) / (v m + p - 1).

    `p` stages, `m` microbatches, `v` chunks of the model on each stage (interleaved schedule,
    which fills and drains in chunks). Source: arXiv 2104.04473, section 2.2, as a share of the
    whole step rather than of the ideal one.
    """
    if p < 1 or m < 1 or v < 1:
        return 0.0
    return (p - 1) / (v * m + p - 1)
