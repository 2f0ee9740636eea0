"""The part of every row that a context-parallel rank holds.

"zigzag": of 2 * cp_size equal chunks rank r has chunks r and 2 * cp_size - 1 - r, so that under a
causal mask all ranks have the same work (megatron-core 0.19, `get_batch_on_this_cp_rank` in
core/utils.py; Transformer Engine's attention expects it). "contiguous": rank r has chunk r of
cp_size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

CP_SLICES = ("zigzag", "contiguous")


def fill_slice(
    out: NDArray[Any], values: NDArray[Any], *, cp_rank: int, cp_size: int, how: str
) -> None:
    """The rank's part [rows, seq_len / cp_size] of values [rows, seq_len]."""
    rows = len(values)
    if how == "contiguous":
        out[:] = values.reshape(rows, cp_size, -1)[:, cp_rank]
        return
    chunks, halves = values.reshape(rows, 2 * cp_size, -1), out.reshape(rows, 2, -1)
    halves[:, 0] = chunks[:, cp_rank]
    halves[:, 1] = chunks[:, 2 * cp_size - 1 - cp_rank]
