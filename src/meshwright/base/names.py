"""Did-you-mean: the names nearest to one that was not found."""

from __future__ import annotations

from difflib import SequenceMatcher
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CUTOFF = 0.6


def nearest(name: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Up to `limit` of `known` that resemble `name`, best first, ignoring case and separators.

    A known name that merely contains the wanted one counts as near, so that "llama-70b" finds
    "llama-3.1-70b".
    """
    wanted = slug(name)
    if not wanted:
        return ()
    scored = [(_likeness(wanted, slug(candidate)), candidate) for candidate in known]
    close = [(score, candidate) for score, candidate in scored if score >= _CUTOFF]
    close.sort(key=lambda pair: (-pair[0], pair[1]))
    return tuple(candidate for _, candidate in close[:limit])


def did_you_mean(name: object, known: Iterable[str], *, otherwise: str = "one of") -> str:
    """A hint for a name that was not found: the nearest ones, or `otherwise` and all of them."""
    names = tuple(known)
    near = nearest(str(name), names)
    return question(near) if near else f"{otherwise} {', '.join(names)}"


def question(suggestions: Iterable[str]) -> str:
    """ "did you mean a or b?"."""
    return f"did you mean {' or '.join(suggestions)}?"


def likeness(name: str, other: str) -> float:
    """Likeness of two names in 0..1, by the letters they share in order."""
    return _ratio(slug(name), slug(other))


@lru_cache(maxsize=2**14)
def slug(name: str) -> str:
    """Lower case with separators dropped, so that "Llama_3 70B" and "llama-3-70b" agree."""
    return "".join(char for char in name.lower() if char.isalnum() or char == ".")


def _likeness(wanted: str, candidate: str) -> float:
    """Similarity in 0..1; containment lifts it, more so the more of the candidate is covered."""
    if not candidate:
        return 0.0
    ratio = _ratio(wanted, candidate)
    if len(wanted) >= 3 and wanted in candidate:
        return max(ratio, 0.75 + 0.2 * len(wanted) / len(candidate))
    return ratio


def _ratio(wanted: str, candidate: str) -> float:
    """Their likeness in 0..1, 0 where the letters they share already rule out a near one."""
    letters = len(wanted) + len(candidate)
    if 2 * min(len(wanted), len(candidate)) < _CUTOFF * letters:
        return 0.0
    shared = sum(min(wanted.count(c), candidate.count(c)) for c in set(wanted) & set(candidate))
    if 2 * shared < _CUTOFF * letters:
        return 0.0
    return SequenceMatcher(None, wanted, candidate).ratio()
