"""Which documents are worth training on: the published heuristics, each in one file."""

from __future__ import annotations

from meshwright.data.filters.apply import apply, explain

__all__ = ["apply", "explain"]
