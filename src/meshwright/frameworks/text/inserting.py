"""Places where a new setting can stand, and how it is written there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.text.written import argument_words, key_text, nested, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.base.locate import Document, Key
    from meshwright.frameworks.setting import Setting, Source

_CONTINUED = pattern(r"[ \t]*\\\r?\n")
_HEADER = pattern(r"^[ \t]*\[", re.MULTILINE)


def insertions(
    source: Source, name: str, value: Any, *, near: Setting | None, settings: Sequence[Setting]
) -> Iterator[tuple[int, str]]:
    """Offsets and texts to insert there, the best first."""
    if source.syntax in ("shell", "overrides"):
        return _arguments(source, name, value, near or _last(settings))
    if source.syntax == "python":
        return _python(source, name, value, near or _last(settings))
    return _tree(source, name, value)


def gathered(source: Source, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings to insert, those of one table that does not exist yet as one: the table.

    They are in the order in which they can be added at one place: in YAML the innermost first, in
    TOML new tables last. MeshwrightError where one name is both a value and a table.
    """
    from meshwright.frameworks.text.tree import document_of

    if source.syntax not in ("json", "toml", "yaml"):
        return dict(values)
    document = document_of(source)
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    depths: dict[tuple[str, ...], int] = {}
    for name, value in values.items():
        path = name.split(".")
        depth = len(_existing(document, path))
        group = tuple(path[: depth + 1])
        groups.setdefault(group, {})[".".join(path[depth + 1 :])] = value
        depths[group] = depth

    def rank(group: tuple[str, ...]) -> int:
        return int("" not in groups[group]) if source.syntax == "toml" else -depths[group]

    return dict(_told(".".join(g), groups[g]) for g in sorted(groups, key=rank))


def _told(table: str, entries: Mapping[str, Any]) -> tuple[str, Any]:
    """A new table as one setting, or the one setting of it by its whole name."""
    inner, value = next(iter(entries.items()))
    if len(entries) == 1:
        return (f"{table}.{inner}" if inner else table), value
    return table, nested(entries)


def _last(settings: Sequence[Setting]) -> Setting | None:
    """The setting that stands last among those that can be cut."""
    solid = [s for s in settings if s.whole.start < s.whole.end]
    return max(solid, key=lambda s: s.whole.end, default=None)


def _arguments(
    source: Source, name: str, value: Any, near: Setting | None
) -> Iterator[tuple[int, str]]:
    """After another argument, in its manner: a line of its own, continued or not, or inline."""
    text = source.text
    if source.syntax == "overrides" and "." not in name:
        name = "." + name
    words = " ".join(argument_words(name, value)).lstrip(".")
    if near is None:
        blank = "" if not text or text.endswith("\n") else "\n"
        yield len(text), f"{blank}{words}\n"
        return
    line = text.rfind("\n", 0, near.key.start) + 1
    indent = text[line : near.key.start]
    if not indent.strip():
        end = max(near.whole.end, near.key.end)
        newline = "\r\n" if text[:end].endswith("\r\n") else "\n"
        if text[:end].endswith("\n"):
            continued = " \\" if _CONTINUED.search(text[near.key.end : end]) else ""
            yield end, f"{indent}{words}{continued}{newline}"
        elif text[line - 2 : line - 1] == "\\" or text[line - 3 : line - 1] == "\\\r":
            yield end, f" \\{newline}{indent}{words}"
        else:
            yield end, f"{newline}{indent}{words}{newline if end == len(text) else ''}"
    end = near.whole.end
    while end > near.key.end and text[end - 1] in " \t\r\n\\":
        end -= 1
    yield end, f" {words}"


def _python(
    source: Source, name: str, value: Any, near: Setting | None
) -> Iterator[tuple[int, str]]:
    """After a keyword of the same call, or an assignment to the same object."""
    if near is None:
        return
    text = source.text
    line = text.rfind("\n", 0, near.whole.start) + 1
    prefix = near.name.rpartition(".")[0]
    inner = name.removeprefix(prefix + ".") if prefix else name
    written = value_text("python", value)
    said = text[near.key.start : near.whole.end]
    before = text[line : near.key.start]
    if before.rstrip().endswith("."):  # an attribute
        root = before.strip().partition(".")[0]
        indent = before[: len(before) - len(before.lstrip())]
        yield near.whole.end, f"{indent}{root}.{name} = {written}\n"
    elif "=" in said.partition("\n")[0] and inner.isidentifier():
        own_line = not before.strip()
        if own_line and said.rstrip().endswith(","):
            yield near.whole.end, f"{before}{inner}={written},\n"
        end = near.where.end
        yield end, f", {inner}={written}"


def _tree(source: Source, name: str, value: Any) -> Iterator[tuple[int, str]]:
    """Into the innermost table that exists; what is missing of the path comes with it."""
    from meshwright.frameworks.text.tree import document_of

    document = document_of(source)
    path = name.split(".")
    key = _existing(document, path)
    if source.syntax == "toml":
        yield from _toml(source, document, key, path[len(key) :], value)
    elif source.syntax == "json":
        yield from _braces(source, document, key, path[len(key) :], value)
    else:
        yield from _yaml(source, document, key, path[len(key) :], value)


def _existing(document: Document, path: Sequence[str]) -> Key:
    """The longest beginning of a path whose value is a table."""
    key: Key = ()
    for part in path[:-1]:
        parent = document.value(key)
        step: str | int = int(part) if isinstance(parent, list) and part.isdigit() else part
        below = document.value((*key, step))
        if not isinstance(below, dict | list):
            break
        key = (*key, step)
    while key and not isinstance(document.value(key), dict):
        key = key[:-1]
    return key


def _around(path: Sequence[str], value: Any) -> Any:
    """A value in the tables that its path still needs."""
    for part in reversed(path[1:]):
        value = {part: value}
    return value


def _braces(
    source: Source, document: Document, key: Key, path: Sequence[str], value: Any
) -> Iterator[tuple[int, str]]:
    """Into `{...}`: after its last entry, in the manner of the entries."""
    text, syntax = source.text, source.syntax
    span = document.spans.get(key)
    if span is None:
        return
    colon = " = " if syntax == "toml" else ": "
    written = value_text(syntax, _around(path, value))
    entry = f"{key_text(syntax, path[0])}{colon}{written}"
    entries = document.value(key)
    if not isinstance(entries, dict):
        return
    last = document.spans.get((*key, list(entries)[-1])) if entries else None
    if last is None:
        opened = text.find("{", span[0])
        yield (opened + 1 if opened >= 0 else span[0]), entry
        return
    first = document.key_spans.get((*key, next(iter(entries))))
    line = text.rfind("\n", 0, first[0]) + 1 if first else 0
    indent = text[line : first[0]] if first else ""
    multiline = not indent.strip() and "\n" in text[span[0] : span[1]]
    between = f"\n{indent}" if multiline else " "
    yield last[1], f",{between}{entry}"
    comma = text.find(",", last[1], span[1])
    if comma >= 0:
        yield comma + 1, f"{between}{entry},"


def _toml(
    source: Source, document: Document, key: Key, path: Sequence[str], value: Any
) -> Iterator[tuple[int, str]]:
    """Behind the last entry of its section, or in a new section at the end."""
    text = source.text
    span = document.spans.get(key)
    if key and span is not None and text.startswith("{", span[0]):
        yield from _braces(source, document, key, path, value)
        return
    names = [key_text("toml", str(part)) for part in (*key, *path)]
    blank = "" if not text or text.endswith("\n") else "\n"
    if isinstance(value, dict):
        yield len(text), blank + _sections(names, value)
        return
    written = value_text("toml", value)
    if len(path) == 1:
        entry = f"{key_text('toml', path[0])} = {written}\n"
        yield _end_of_section(text, document, key), entry
    yield len(text), f"{blank}\n[{'.'.join(names[:-1])}]\n{names[-1]} = {written}\n"


def _sections(names: Sequence[str], table: Mapping[str, Any]) -> str:
    """A new table as a section of its plain entries, and one for each table in it."""
    plain = {n: v for n, v in table.items() if not isinstance(v, dict)}
    entries = "".join(
        f"{key_text('toml', n)} = {value_text('toml', v)}\n" for n, v in plain.items()
    )
    own = f"\n[{'.'.join(names)}]\n{entries}" if plain else ""
    inner = [(n, v) for n, v in table.items() if isinstance(v, dict)]
    return own + "".join(_sections([*names, key_text("toml", n)], v) for n, v in inner)


def _end_of_section(text: str, document: Document, key: Key) -> int:
    """The start of the line behind the last plain entry under a header."""
    plain = [
        document.spans[below][1]
        for below in document.key_spans
        if below[: len(key)] == key and len(below) == len(key) + 1 and below in document.spans
    ]
    span = document.spans.get(key)
    at = max(plain, default=span[1] if key and span else -1)
    if at < 0:
        header = _HEADER.search(text)
        return header.start() if header else len(text)
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _yaml(
    source: Source, document: Document, key: Key, path: Sequence[str], value: Any
) -> Iterator[tuple[int, str]]:
    """Behind the last entry of its mapping, at the indent of its entries."""
    text = source.text
    span = document.spans.get(key)
    if span is not None and text.startswith("{", span[0]):
        yield from _braces(source, document, key, path, value)
        return
    entries = document.value(key) or {}
    if not isinstance(entries, dict):
        return
    known = [document.key_spans[(*key, n)] for n in entries if (*key, n) in document.key_spans]
    column = known[0][0] - (text.rfind("\n", 0, known[0][0]) + 1) if known else 0
    end = max(
        (document.spans[(*key, n)][1] for n in entries if (*key, n) in document.spans), default=0
    )
    lines = _block({path[0]: _around(path, value)}, column)
    after = text.find("\n", end) if entries else len(text) - 1
    at = len(text) if after < 0 else after + 1
    blank = "\n" if at == len(text) and text and not text.endswith("\n") else ""
    yield at, blank + "".join(lines)


def _block(table: Mapping[str, Any], column: int) -> list[str]:
    """The lines of a mapping whose keys stand at a column."""
    lines: list[str] = []
    for name, value in table.items():
        start = f"{' ' * column}{key_text('yaml', name)}:"
        if isinstance(value, dict) and value:
            lines += [f"{start}\n", *_block(value, column + 2)]
        else:
            lines.append(f"{start} {value_text('yaml', value)}\n")
    return lines
