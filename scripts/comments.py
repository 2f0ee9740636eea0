"""What the comments of a module say of each name: of a field, of a key, of a column.

A comment belongs to the line that it ends, and to what stands there: a field of a class
(`name: type = default  # comment`), an entry of a dictionary (`"name": ...,  # comment`), or a pair
(`("name", ...),  # comment`). "likewise" stands for the comment before it.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


def comments_of(module: ModuleType, name: str) -> dict[str, str]:
    """The comments inside the class or the assigned value of that name, by what they are about."""
    source = inspect.getsource(module)
    comments = _comments(source)
    found: dict[str, str] = {}
    last = ""
    for key, line in _named(_definition(source, name)):
        said = comments.get(line, "")
        found[key] = last if said == "likewise" else said
        last = found[key] or last
    return found


@cache
def _comments(source: str) -> dict[int, str]:
    """The comments by the number of their line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _definition(source: str, name: str) -> ast.AST:
    """The class, or the assignment at the top of the module, that bears the name."""
    for node in ast.parse(source).body:
        names = [getattr(node, "name", None)]
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names += [target.id for target in targets if isinstance(target, ast.Name)]
        if name in names:
            return node
    raise LookupError(name)


def _named(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that are defined inside a node, each with the line on which it ends."""
    for part in ast.walk(node):
        if isinstance(part, ast.AnnAssign) and part is not node:
            if isinstance(part.target, ast.Name) and part.end_lineno:
                yield part.target.id, part.end_lineno
        elif isinstance(part, ast.Dict):
            for key, value in zip(part.keys, part.values, strict=True):
                if isinstance(key, ast.Constant) and value.end_lineno:
                    yield str(key.value), value.end_lineno
        elif isinstance(part, ast.Tuple) and part.elts and part.end_lineno:
            first = part.elts[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, part.end_lineno
