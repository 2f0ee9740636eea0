"""Integer arithmetic of `$(( ... ))`: +, -, *, /, %, comparisons and brackets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

_TOKEN = pattern(
    r"\s*(?:(0[xX][0-9a-fA-F]{1,15}|\d{1,18})|\$?\{?([A-Za-z_]\w*)\}?|(\*\*|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:]))"
)
_MOST_TOKENS = 200
_LARGEST = 2**63
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


class Unreadable(ValueError):  # noqa: N818 - says what it is
    """Text that is no such arithmetic, or whose names have no number."""


def evaluate(text: str, number_of: Callable[[str], int]) -> int:
    """The value; Unreadable when it has none. `number_of` gives a variable's number."""
    return _Calculation(_tokens(text), number_of).result()


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(found) > _MOST_TOKENS:
            raise Unreadable(text)
        at = match.end()
        kind = ("number", "name", "sign")[(match.lastindex or 1) - 1]
        found.append((kind, match.group(match.lastindex or 1)))
    return found


class _Calculation:
    def __init__(self, tokens: list[tuple[str, str]], number_of: Callable[[str], int]) -> None:
        self.tokens = tokens
        self.number_of = number_of
        self.at = 0

    def result(self) -> int:
        value = self.choice()
        if self.at < len(self.tokens):
            raise Unreadable
        return value

    def sign(self, *wanted: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "sign":
            found = self.tokens[self.at][1]
            if found in wanted:
                self.at += 1
                return found
        return ""

    def choice(self) -> int:
        value = self.level(0)
        if not self.sign("?"):
            return value
        first = self.choice()
        if not self.sign(":"):
            raise Unreadable
        second = self.choice()
        return first if value else second

    def level(self, depth: int) -> int:
        if depth == len(_LEVELS):
            return self.power()
        value = self.level(depth + 1)
        while sign := self.sign(*_LEVELS[depth]):
            value = _apply(sign, value, self.level(depth + 1))
        return value

    def power(self) -> int:
        base = self.unary()
        return _apply("**", base, self.power()) if self.sign("**") else base

    def unary(self) -> int:
        sign = self.sign("-", "+", "!")
        if not sign:
            return self.atom()
        value = self.unary()
        return -value if sign == "-" else int(not value) if sign == "!" else value

    def atom(self) -> int:
        if self.sign("("):
            value = self.choice()
            if not self.sign(")"):
                raise Unreadable
            return value
        if self.at >= len(self.tokens) or self.tokens[self.at][0] == "sign":
            raise Unreadable
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "name":
            return self.number_of(text)
        return int(text, 16) if text[:2].lower() == "0x" else int(text)


def _apply(sign: str, left: int, right: int) -> int:
    """One operation as the shell does it: division rounds towards zero."""
    if sign in ("/", "%"):
        if right == 0:
            raise Unreadable
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if sign == "/" else left - quotient * right
    if sign in ("**", "<<", ">>") and not 0 <= right < 64:
        raise Unreadable
    value = _OPERATIONS[sign](left, right)
    if abs(value) >= _LARGEST:
        raise Unreadable
    return value


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "**": lambda a, b: a**b if abs(a) < 2**16 else _LARGEST,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b),
    ">=": lambda a, b: int(a >= b),
    "&&": lambda a, b: int(bool(a and b)),
    "||": lambda a, b: int(bool(a or b)),
}
