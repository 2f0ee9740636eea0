"""Shares as text."""

from __future__ import annotations


def percent(share: float) -> str:
    """A share with two digits that count, and never 0 % or 100 % of what is not."""
    if share and share < 0.0001:
        return "<0.01%"
    return f"{share:.2%}" if share < 0.01 else f"{min(share, 0.999) if share < 1 else share:.1%}"
