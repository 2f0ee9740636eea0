"""Values as words in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def ranks_in_words(numbers: Iterable[int], *, most: int = 8) -> str:
    """ "rank 3", "ranks 0-3, 8"; more than `most` stretches are counted only."""
    listed = sorted(set(numbers))
    if not listed:
        return ""
    stretches = _stretches(listed)
    words = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in stretches[:most])
    rest = sum(b - a + 1 for a, b in stretches[most:])
    more = f" and {rest:,} more" if rest else ""
    return f"{'rank' if len(listed) == 1 else 'ranks'} {words}{more}"


def _stretches(listed: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of numbers that follow each other, by their first and last."""
    found: list[tuple[int, int]] = []
    for number in listed:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
