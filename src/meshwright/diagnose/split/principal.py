"""What a window lost most time to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ENOUGH_PCT = 10.0  # of the window; less than that is no bottleneck


def principal_of(
    lost_pct: Mapping[str, float], *, preprocess_pct: float = 0.0
) -> tuple[str, str | None]:
    """The largest loss and the next, each if it is a tenth of the window; else "compute" and None.

    `lost_pct` are shares of `attribution.lost_shares`. Of late launches, `preprocess_pct` is what
    the host spent on preparing samples: that counts as data processing.
    """
    shares = dict(lost_pct)
    moved = min(preprocess_pct, shares.get("host_launch", 0.0))
    shares["host_launch"] = shares.get("host_launch", 0.0) - moved
    shares["data_processing"] = shares.get("data_processing", 0.0) + moved
    told = [n for n, pct in sorted(shares.items(), key=lambda i: -i[1]) if pct >= ENOUGH_PCT]
    return (told[0] if told else "compute"), (told[1] if len(told) > 1 else None)
