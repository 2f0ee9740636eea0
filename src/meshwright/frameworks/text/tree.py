"""JSON, TOML and YAML: trees flattened to their leaves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.locate.document import Document, dotted
from meshwright.frameworks.setting import Parsed, Setting, Span
from meshwright.frameworks.text.references import references_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.locate import Key
    from meshwright.frameworks.setting import Source

_OPENED = re.compile(r"(?:[&!]\S+\s+)*\{")
_BLANKS = re.compile(r"[ \t\r\n]*")
_LINE_REST = re.compile(r"[ \t]*,?[ \t]*(?:(?:#|//)[^\n]*)?(?:\r?\n|$)")


def parse_tree(source: Source) -> Parsed:
    """The leaves of a document by dotted name; lists of plain values are leaves."""
    document, others = _documents(source)
    settings = tuple(_setting(source, document, key) for key in _leaves(document.data))
    findings = [] if isinstance(document.data, dict) else [_no_mapping(source)]
    if others:
        findings.append(_more_documents(source, others))
    return Parsed(
        source=source,
        settings=settings,
        references=references_in(settings),
        findings=tuple(findings),
    )


def document_of(source: Source) -> Document:
    """The document of a source with its places; InvalidInput where it is not in its syntax."""
    return _documents(source)[0]


def _documents(source: Source) -> tuple[Document, int]:
    """The document of a source, and how many others its file holds."""
    if source.syntax == "json":
        from meshwright.base.locate.json import parse_json

        return parse_json(source.text, source.file, lenient=True), 0
    if source.syntax == "toml":
        from meshwright.base.locate.toml import parse_toml

        return parse_toml(source.text, source.file), 0
    from meshwright.base.locate.yaml import parse_first_yaml

    return parse_first_yaml(source.text, source.file)


def _leaves(node: Any, key: Key = ()) -> Iterator[Key]:
    """The key paths of plain values, of lists of them, and of empty tables."""
    if isinstance(node, dict) and node:
        for name, item in node.items():
            yield from _leaves(item, (*key, name))
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        for index, item in enumerate(node):
            yield from _leaves(item, (*key, index))
    elif key:
        yield key


def _setting(source: Source, document: Document, key: Key) -> Setting:
    name = dotted(key)
    where = Span(*document.spans.get(key, (0, 0)))
    own = document.key_spans.get(key)
    return Setting(
        name=name,
        spelled=name,
        value=document.value(key),
        source=source,
        key=where if own is None else Span(*own),
        where=where,
        whole=_whole(source, document, key, where if own is None else Span(*own), where),
    )


def _whole(source: Source, document: Document, key: Key, name: Span, where: Span) -> Span:
    """What must go when an entry goes: its lines where they are its own, else one comma with it.

    Empty, at the key, where cutting would break the text: the value stands elsewhere (an alias) or
    shares its first line with the dash of a list.
    """
    text = source.text
    nothing = Span(name.start, name.start)
    if where.start < name.end:  # an item of a list, or a value from elsewhere
        return nothing
    line = text.rfind("\n", 0, name.start) + 1
    alone = not text[line : name.start].strip()
    rest = _LINE_REST.match(text, where.end)
    if not _is_flow(text, document.spans.get(key[:-1])):
        return Span(line, rest.end()) if alone and rest else nothing
    after = _behind_blanks(text, where.end)
    if text.startswith(",", after):
        own_line = alone and rest is not None
        return (
            Span(line, rest.end())
            if own_line and rest
            else Span(name.start, _behind_blanks(text, after + 1))
        )
    comma = _comma_before(text, document, key)
    if comma is not None and not text[comma + 1 : name.start].strip():
        return Span(comma, where.end)
    return Span(name.start, where.end)


def _is_flow(text: str, parent: tuple[int, int] | None) -> bool:
    """Whether the table around an entry is written in braces."""
    return parent is not None and bool(_OPENED.match(text, parent[0]))


def _behind_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def _comma_before(text: str, document: Document, key: Key) -> int | None:
    """The comma between the entry before and this one; None for the first entry."""
    siblings = list(document.value(key[:-1]) or ())
    position = siblings.index(key[-1]) if key[-1] in siblings else 0
    before = document.spans.get((*key[:-1], siblings[position - 1])) if position else None
    if before is None:
        return None
    at = _behind_blanks(text, before[1])
    return at if text.startswith(",", at) else None


def _no_mapping(source: Source) -> Finding:
    message = "holds no settings: its top level is no table of names and values"
    return Finding(
        message=message, severity=Severity.INFO, file=source.file, line=1, column=1, reason=message
    )


def _more_documents(source: Source, others: int) -> Finding:
    message = f"{others} more document{'s' if others > 1 else ''} in this file not read"
    return Finding(
        message=message,
        severity=Severity.INFO,
        file=source.file,
        reason=message,
        hint="split the file at its --- lines to check each",
    )
