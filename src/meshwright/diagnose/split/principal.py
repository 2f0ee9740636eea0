"""What a window lost most time to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ENOUGH_PCT = 10.0  # of the window; less than that is no bottleneck


def principal_of(lost_pct: Mapping[str, float]) -> tuple[str, str | None]:
    """The largest loss and the next, each if it is a tenth of the window; else "compute" and None.

    `lost_pct` are shares of `attribution.lost_shares`.
    """
    told = [n for n, pct in sorted(lost_pct.items(), key=lambda i: -i[1]) if pct >= ENOUGH_PCT]
    return (told[0] if told else "compute"), (told[1] if len(told) > 1 else None)
