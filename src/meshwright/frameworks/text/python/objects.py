"""The configuration objects that Python code builds, as lists of what was set in them."""

from __future__ import annotations

import ast
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.frameworks.setting import UNKNOWN, Span
from meshwright.frameworks.text.python.values import Text, constant, dotted_name

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_ENTRIES = 50_000
_DEEPEST = 100
_BUILDERS = ("config", "recipe", "strategy", "trainer", "plugin", "replace", "partial", "spec")
_OTHER = frozenset(
    {
        "ArgumentParser",
        "Console",
        "Logger",
        "Namespace",
        "Path",
        "Popen",
        "Process",
        "Table",
        "Thread",
        "TypeVar",
        "basicConfig",
    }
)
_LOWER = frozenset({"fully_shard", "initialize", "parallelize", "wrap", "default_adamw", "setup"})


class TooLarge(Exception):  # noqa: N818 - a bound that was met
    """The objects of a text multiply beyond any use."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing set in an object: its path in it, its value, and where name and value stand."""

    path: str
    value: Any
    key: Span
    where: Span
    statement: Span


@dataclass(slots=True)
class Object:
    """What was set in an object, in order; `kind` is what was called to make it."""

    kind: str = ""
    entries: list[Entry] = field(default_factory=list)
    used: bool = False  # it is a part of another

    def under(self, path: str) -> list[Entry]:
        """The entries with `path` before their own."""
        return [replace(e, path=f"{path}.{e.path}" if path else e.path) for e in self.entries]


@dataclass(slots=True)
class Names:
    """The variables of a function or module: values with their places, and objects."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    objects: dict[str, Object] = field(default_factory=dict)

    def copy(self) -> Names:
        """A scope that starts with what this one knows."""
        return Names(dict(self.values), dict(self.places), dict(self.objects))

    def forget(self, name: str) -> None:
        """Makes a name unknown."""
        self.values.pop(name, None)
        self.places.pop(name, None)
        self.objects.pop(name, None)


@dataclass(slots=True)
class Builder:
    """Turns expressions into objects; `call` goes through a function of the same text."""

    text: Text
    call: Callable[[ast.Call, Names], Object | None]
    kinds: list[str] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)  # functions called for a part of an object
    count: int = 0

    def object_of(self, node: ast.AST, names: Names, depth: int = 0) -> Object | None:
        """The object that an expression makes; None where it makes none that is read."""
        if depth > _DEEPEST:
            return None
        if isinstance(node, ast.Name):
            found = names.objects.get(node.id)
            if found is not None:
                found.used = True
            return found
        if isinstance(node, ast.Dict):
            return self.of_dict(node, names, depth)
        if isinstance(node, ast.Call):
            local = self.call(node, names)
            if local is not None and depth:
                self.parts.add(dotted_name(node.func))
            return local if local is not None else self.of_call(node, names, depth)
        return None

    def of_dict(self, node: ast.Dict, names: Names, depth: int) -> Object | None:
        """A dictionary with text as keys."""
        result = Object("dict")
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                spread = self.object_of(value, names, depth + 1)
                result.entries += spread.entries if spread is not None else []
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                where = self.text.span(key)
                span = Span(where.start, self.text.span(value).end)
                self.add(result, key.value, value, names, key=where, statement=span, depth=depth)
        return result if node.keys else None

    def of_call(self, node: ast.Call, names: Names, depth: int) -> Object | None:
        """What the keywords of a call state, if it is one that makes a configuration."""
        kind = dotted_name(node.func)
        if not makes_configuration(kind):
            return None
        result = Object(kind)
        if kind != "dict":
            self.kinds.append(kind)
        for argument in node.args:
            if inner := dotted_name(argument):
                self.kinds += (
                    [inner] if inner not in names.values and inner not in names.objects else []
                )
            elif isinstance(argument, ast.Call | ast.Dict):
                part = self.object_of(argument, names, depth + 1)
                result.entries += part.entries if part is not None else []
        for keyword in node.keywords:
            if keyword.arg is None:
                spread = self.object_of(keyword.value, names, depth + 1)
                result.entries += spread.entries if spread is not None else []
                continue
            whole = self.text.span(keyword)
            key = Span(whole.start, whole.start + len(keyword.arg))
            self.add(
                result, keyword.arg, keyword.value, names, key=key, statement=whole, depth=depth
            )
        return result

    def add(
        self,
        result: Object,
        path: str,
        value: ast.AST,
        names: Names,
        *,
        key: Span,
        statement: Span,
        depth: int = 0,
    ) -> None:
        """Adds what `path` is set to: the parts of an object, or a plain value."""
        self.count += 1
        inner = self.object_of(value, names, depth + 1)
        if inner is not None and inner.entries:
            self.count += len(inner.entries)
            if self.count > _MOST_ENTRIES:
                raise TooLarge
            result.entries += inner.under(path)
            return
        if isinstance(value, ast.List | ast.Tuple) and any(
            isinstance(item, ast.Call | ast.Dict) for item in value.elts
        ):
            for number, item in enumerate(value.elts):
                span = self.text.span(item)
                self.add(
                    result,
                    f"{path}.{number}",
                    item,
                    names,
                    key=span,
                    statement=span,
                    depth=depth + 1,
                )
            return
        plain, where = self.plain(value, names)
        result.entries.append(Entry(path, plain, key, where, statement))

    def plain(self, value: ast.AST, names: Names) -> tuple[Any, Span]:
        """A plain value and where it is stated: at its assignment where a name stands for it."""
        found = constant(value, names.values)
        where = self.text.span(value)
        if isinstance(value, ast.Name):
            where = names.places.get(value.id, where)
        if found is UNKNOWN and isinstance(value, ast.Call) and is_literal_call(value):
            found = " ".join(self.text.of(value).split())
        return found, where


def is_literal_call(node: ast.Call) -> bool:
    """Whether a call has only constants as arguments: `model_registry("8B")`."""
    parts = [*node.args, *(keyword.value for keyword in node.keywords)]
    name = dotted_name(node.func)
    if not parts and not name.endswith(".Config"):  # defaults of a class that the name implies
        return False
    return bool(name) and all(isinstance(p, ast.Constant) for p in parts)


def makes_configuration(kind: str) -> bool:
    """Whether a call makes a configuration, by its name: a class, `dict`, or a recipe."""
    name = kind.rpartition(".")[2]
    if not name:
        return False
    if name in _OTHER or name.endswith(("Error", "Exception", "Warning")):
        return False
    if name == "dict" or name in _LOWER or name.strip("_")[:1].isupper():
        return True
    return name.lower().endswith(_BUILDERS)
