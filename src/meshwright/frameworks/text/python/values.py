"""Expressions of a Python text into plain values, where they have one without running anything."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST = 10_000  # characters or items of a computed value
_LARGEST = 2**63
_LINES = pattern(r"\r\n|\r|\n")
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_CASTS: dict[str, Callable[[Any], Any]] = {"int": int, "float": float, "str": str, "bool": bool}
_MOST_DEEP = 100


class Text:
    """A Python text whose nodes can be placed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in _LINES.finditer(text))]

    def offset(self, line: int, column: int) -> int:
        """The offset of a place that `ast` gives: a line from 1, a column in bytes of UTF-8."""
        start = self.starts[min(line, len(self.starts)) - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        head = self.text[start:end]
        if head.isascii():
            return start + column
        return start + len(head.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.AST) -> Span:
        """Where an expression or statement stands."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None) or column
        return Span(self.offset(line, column), self.offset(end_line, end_column))

    def of(self, node: ast.AST) -> str:
        """The text of a node."""
        span = self.span(node)
        return self.text[span.start : span.end]


def dotted_name(node: ast.AST) -> str:
    """ "a.b.c" of a chain of attributes; "" of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def constant(node: ast.AST | None, names: Mapping[str, Any], depth: int = 0) -> Any:
    """The value of an expression of constants; UNKNOWN of any other.

    `names` holds values of variables. A name with dots, as `torch.bfloat16`, is its own text.
    """
    if node is None or depth > _MOST_DEEP:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        plain = node.value is None or isinstance(node.value, bool | int | float | str)
        return node.value if plain and _is_small(node.value) else UNKNOWN
    if isinstance(node, ast.Name):
        return names.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        return _member(node, names)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = [constant(item, names, depth + 1) for item in node.elts]
        return UNKNOWN if any(item is UNKNOWN for item in items) else items
    if isinstance(node, ast.Dict):
        return {} if not node.keys else UNKNOWN
    return _computed(node, names, depth + 1)


def _member(node: ast.Attribute, names: Mapping[str, Any]) -> Any:
    """A member of a class or module as text; one of an object of this file is not known."""
    name = dotted_name(node)
    return name if name and name.partition(".")[0] not in names else UNKNOWN


def _computed(node: ast.AST, names: Mapping[str, Any], depth: int) -> Any:
    try:
        if isinstance(node, ast.UnaryOp):
            value = constant(node.operand, names, depth)
            return _signed(node.op, value)
        if isinstance(node, ast.BinOp):
            return _combined(
                node.op, constant(node.left, names, depth), constant(node.right, names, depth)
            )
        if isinstance(node, ast.JoinedStr):
            return _joined(node, names, depth)
        if isinstance(node, ast.Call):
            return _called(node, names, depth)
    except (ArithmeticError, ValueError, TypeError):
        return UNKNOWN
    return UNKNOWN


def _signed(sign: ast.unaryop, value: Any) -> Any:
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(sign, ast.Not):
        return not value
    if not isinstance(value, int | float):
        return UNKNOWN
    return -value if isinstance(sign, ast.USub) else +value


def _combined(sign: ast.operator, left: Any, right: Any) -> Any:
    """A binary operation, refused before it grows."""
    if left is UNKNOWN or right is UNKNOWN or type(sign) not in _OPERATIONS:
        return UNKNOWN
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(sign, ast.Pow) and (not numbers or abs(right) > 64 or abs(left) > 2**20):
        return UNKNOWN
    if isinstance(sign, ast.Mult) and not numbers:
        times = right if isinstance(right, int) else left
        if not isinstance(times, int) or len(_sized(left, right)) * times > _LONGEST:
            return UNKNOWN
    if isinstance(sign, ast.Mod) and not numbers:
        return UNKNOWN
    value = _OPERATIONS[type(sign)](left, right)
    return value if _is_small(value) else UNKNOWN


def _sized(left: Any, right: Any) -> Any:
    return left if isinstance(left, str | list) else right if isinstance(right, str | list) else ""


def _is_small(value: Any) -> bool:
    if isinstance(value, str | list):
        return len(value) <= _LONGEST
    return not isinstance(value, int) or abs(value) < _LARGEST


def _joined(node: ast.JoinedStr, names: Mapping[str, Any], depth: int) -> Any:
    parts: list[str] = []
    for part in node.values:
        plain = part.value if isinstance(part, ast.FormattedValue) else part
        if isinstance(part, ast.FormattedValue) and part.format_spec is not None:
            return UNKNOWN
        value = constant(plain, names, depth)
        if value is UNKNOWN:
            return UNKNOWN
        parts.append(str(value))
    return "".join(parts) if sum(map(len, parts)) <= _LONGEST else UNKNOWN


def _called(node: ast.Call, names: Mapping[str, Any], depth: int) -> Any:
    """`int(...)` and its kin of constants, and the default of `os.environ.get`."""
    name = dotted_name(node.func)
    if name in ("os.environ.get", "os.getenv", "environ.get") and len(node.args) == 2:
        return constant(node.args[1], names, depth)
    if name in _CASTS and len(node.args) == 1 and not node.keywords:
        value = constant(node.args[0], names, depth)
        if isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < 40):
            return _CASTS[name](value)
    return UNKNOWN
