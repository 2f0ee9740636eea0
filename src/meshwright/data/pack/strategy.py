"""The strategies by name, and what each makes of the same documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.pack.best_fit import best_fit
from meshwright.data.pack.concatenate import concatenate, count_cut
from meshwright.data.pack.padded import padded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from meshwright.data.pack.rows import Rows

STRATEGIES: Mapping[str, Callable[[NDArray[np.integer], int], Rows]] = {
    "concatenate": concatenate,
    "best-fit": best_fit,
    "padded": padded,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """What a strategy makes of some documents."""

    rows: int
    tokens: int  # padding left out
    padding: int  # tokens
    cut: int  # documents in more than one row


def pack(lengths: NDArray[np.integer], seq_len: int, *, strategy: str) -> Rows:
    """Documents of these lengths in rows of at most `seq_len` tokens."""
    return STRATEGIES[strategy](lengths, seq_len)


def layout_of(strategy: str, layout: str) -> str:
    """What .bin holds a sequence for: "documents" or "rows"; "auto" is rows for best-fit."""
    if layout != "auto":
        return layout
    return "rows" if strategy == "best-fit" else "documents"


def fills(
    lengths: NDArray[np.integer], seq_len: int, *, made: Mapping[str, Rows] | None = None
) -> dict[str, Fill]:
    """All strategies on the same documents, by name; `made` are packings that are there already."""
    tokens = int(lengths.sum(dtype=np.int64))
    longer = int(np.count_nonzero(lengths > seq_len))
    best = (made or {}).get("best-fit")
    rows = {
        "concatenate": -(-tokens // seq_len),
        "best-fit": len(best_fit(lengths, seq_len) if best is None else best),
        "padded": int((-(-lengths.astype(np.int64) // seq_len)).sum()),
    }
    cut = {"concatenate": count_cut(lengths, seq_len), "best-fit": longer, "padded": longer}
    return {
        name: Fill(rows=n, tokens=tokens, padding=n * seq_len - tokens, cut=cut[name])
        for name, n in rows.items()
    }
