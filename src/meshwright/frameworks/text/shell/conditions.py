"""Tests of a script (`[ "$TP" -gt 1 ]`) judged where all their parts are known."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.frameworks.text.shell.expand import Argument, Scope
from meshwright.frameworks.text.shell.grammar import Simple, is_test

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.frameworks.text.shell.grammar import Node
    from meshwright.frameworks.text.shell.lexer import Word

_NUMERIC: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_NUMBER = pattern(r"-?\d{1,18}\Z")


def holds(condition: Sequence[Node], scope: Scope) -> bool | None:
    """Whether a condition is true, None where the file does not say."""
    if not is_test(condition) or not isinstance(condition[0], Simple):
        return _constant(condition)
    words = list(condition[0].words[1:])
    if words and words[-1].bare in ("]", "]]"):
        words.pop()
    if words and words[0].bare == "!":
        inner = _judged(words[1:], scope)
        return None if inner is None else not inner
    return _judged(words, scope)


def matches(subject: Word, patterns: Sequence[Word], scope: Scope) -> bool | None:
    """Whether a `case` takes one of its patterns, None where that is not known."""
    value = _text(subject, scope)
    if value is None:
        return None
    known = [_text(pattern, scope) for pattern in patterns]
    if any(p is not None and fnmatch.fnmatchcase(value[:200], p[:100]) for p in known):
        return True
    return None if None in known else False


def _constant(condition: Sequence[Node]) -> bool | None:
    words = [n.words for n in condition if isinstance(n, Simple)]
    if len(words) != 1 or len(words[0]) != 1 or len(condition) != 1:
        return None
    return {"true": True, ":": True, "false": False}.get(words[0][0].bare or "")


def _judged(words: list[Word], scope: Scope) -> bool | None:
    if len(words) == 2 and words[0].bare in ("-z", "-n"):
        value = _text(words[1], scope, or_empty=True)
        return None if value is None else (value == "") == (words[0].bare == "-z")
    if len(words) != 3:
        return None
    left, right, sign = _text(words[0], scope), _text(words[2], scope), words[1].bare
    if right == "":
        left = _text(words[0], scope, or_empty=True)
    if left is None or right is None:
        return None
    if sign in ("=", "==", "!="):
        plain = words[2].bare is None or not set(right) & set("*?[")
        same = left == right if plain else fnmatch.fnmatchcase(left[:200], right[:100])
        return same == (sign != "!=")
    if sign in _NUMERIC and _NUMBER.match(left) and _NUMBER.match(right):
        return _NUMERIC[sign](int(left), int(right))
    return None


def _text(word: Word, scope: Scope, *, or_empty: bool = False) -> str | None:
    """The text of a word, without a note of what in it is unknown.

    `or_empty` takes what is set outside of the file as not set at all, as `${NAME:-8}` is read:
    scripts test for emptiness in order to give a default.
    """
    quiet = Scope(_silent, dict(scope.variables), scope.arguments)
    value = Argument(quiet.value(word))
    scope.used |= quiet.used
    if or_empty and value.text is None and value.is_outside:
        return "".join(bit.text or "" for bit in value.bits)
    return value.text


def _silent(what: str, why: str, at: int) -> None:
    """Drops a note."""
