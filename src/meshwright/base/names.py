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


def is_typo(name: str, other: str) -> bool:
    """Whether a name is another with a letter or two of one word wrong, or other separators.

    Words that tell fields apart, as tp and pp, min and max, encoder and decoder, are none: a word
    has four letters or more, begins as it should, and has one letter wrong, two swapped, or up to
    two too few or too many.
    """
    (group, _, leaf), (other_group, _, right) = name.rpartition("."), other.rpartition(".")
    if slug(group) != slug(other_group) or leaf == right:
        return False
    if slug(leaf) == slug(right):
        return True
    words, wanted = _words(leaf), _words(right)
    if len(words) != len(wanted):
        return False
    wrong = [pair for pair in zip(words, wanted, strict=True) if pair[0] != pair[1]]
    return len(wrong) == 1 and _is_misspelt(*wrong[0])


_SHORTEST_WORD = 4
_MOST_LETTERS = 2  # too few or too many


def _words(name: str) -> list[str]:
    return name.lower().strip("-+_").replace("_", "-").split("-")


def _is_misspelt(word: str, wanted: str) -> bool:
    if not (word.isalpha() and wanted.isalpha() and word[0] == wanted[0]):
        return False
    if min(len(word), len(wanted)) < _SHORTEST_WORD:
        return False
    if len(word) == len(wanted):
        at = [i for i, pair in enumerate(zip(word, wanted, strict=True)) if pair[0] != pair[1]]
        first, last = at[0], at[-1]
        swapped = last == first + 1 and word[first : last + 1] == wanted[last] + wanted[first]
        return len(at) == 1 or swapped
    short, long = sorted((word, wanted), key=len)
    letters = iter(long)
    return len(long) - len(short) <= _MOST_LETTERS and all(letter in letters for letter in short)


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
