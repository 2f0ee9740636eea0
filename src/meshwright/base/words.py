"""Values as words in messages."""

from __future__ import annotations

from typing import Any

_LONGEST = 60


def shown(value: Any) -> str:
    """A value as it would stand in a file, cut at 60 characters."""
    try:
        text = str(value).lower() if isinstance(value, bool) else repr(value)
    except ValueError:  # Python prints no integer of thousands of digits
        return "a huge number"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 line", "1,200 lines"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
