"""JSON, TOML and YAML: trees flattened to their leaves."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.locate.document import Document, dotted
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN, Parsed, Setting, Span
from meshwright.frameworks.text.omegaconf import resolved
from meshwright.frameworks.text.references import references_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from meshwright.base.locate import Key
    from meshwright.frameworks.setting import Source

_MOST_LEAVES = 20_000
_OPENED = pattern(r"(?:[&!]\S+\s+)*\{")
_BLANKS = pattern(r"[ \t\r\n]*")
_LINE_REST = pattern(r"[ \t]*,?[ \t]*(?:(?:#|//)[^\n]*)?(?:\r?\n|$)")


def parse_tree(source: Source) -> Parsed:
    """The leaves of a document by dotted name; lists of plain values are leaves."""
    document, findings = _documents(source)
    if not isinstance(document.data, dict):
        findings = [*findings, _no_mapping(source)]
    read = _Tree(source, document)
    leaves = list(islice(_leaves(document.data), _MOST_LEAVES + 1))
    if len(leaves) > _MOST_LEAVES:
        leaves, findings = [], [*findings, _too_many(source)]
    settings = tuple(read.setting(key, before) for key, before in leaves)
    findings = [*findings, *read.findings]
    return Parsed(
        source=source,
        settings=settings,
        references=references_in(settings),
        findings=tuple(findings),
    )


def document_of(source: Source) -> Document:
    """The document of a source with its places; InvalidInput where it is not in its syntax."""
    return _documents(source)[0]


def _documents(source: Source) -> tuple[Document, list[Finding]]:
    """The document of a source, and what to say of the rest of its file."""
    if source.syntax == "json":
        from meshwright.base.locate.json import parse_json

        return parse_json(source.text, source.file, lenient=True), []
    if source.syntax == "toml":
        from meshwright.base.locate.toml import parse_toml

        return parse_toml(source.text, source.file), []
    from meshwright.base.locate.yaml import parse_first_yaml

    first = parse_first_yaml(source.text, source.file)
    findings = [_twice(first.document, key) for key in first.repeated]
    return first.document, findings + (
        [_more_documents(source, first.others)] if first.others else []
    )


def _leaves(node: Any, key: Key = (), before: Key = ()) -> Iterator[tuple[Key, Key]]:
    """The key paths of plain values, of lists of them, and of empty tables, each with the path of
    the entry before it in its table."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, dict):
        inner = node.items()
    elif isinstance(node, list) and any(isinstance(item, dict) for item in node):
        inner = enumerate(node)
    previous: Key = ()
    for name, item in inner:
        yield from _leaves(item, (*key, name), previous)
        previous = (*key, name)
    if key and not previous:
        yield key, before


class _Tree:
    """A document on its way to settings; `findings` collects what cannot be resolved."""

    def __init__(self, source: Source, document: Document) -> None:
        self.source = source
        self.document = document
        self.findings: list[Finding] = []

    def setting(self, key: Key, before: Key) -> Setting:
        """The setting at a key path; `before` is the entry before it in its table."""
        name = dotted(key)
        where = Span(*self.document.spans.get(key, (0, 0)))
        own = self.document.key_spans.get(key)
        place = where if own is None else Span(*own)
        return Setting(
            name=name,
            spelled=name,
            value=self.value(key),
            source=self.source,
            key=place,
            where=where,
            whole=self.whole(key, before, place, where),
        )

    def value(self, key: Key) -> Any:
        """The value at a key path; of `${other.key}` the value there."""
        value = self.document.value(key)
        if self.source.syntax != "yaml" or not isinstance(value, str) or "${" not in value:
            return value
        found = resolved(self.document, key, value)
        if found is UNKNOWN:
            self.findings.append(_unresolved(self.document, key, value))
        return found

    def whole(self, key: Key, before: Key, name: Span, where: Span) -> Span:
        """What must go when an entry goes: its lines where they are its own, or a comma with it.

        Empty, at the key, where cutting would break the text: the value stands elsewhere (an
        alias) or shares its first line with the dash of a list.
        """
        text = self.source.text
        nothing = Span(name.start, name.start)
        if where.start < name.end:  # an item of a list, or a value from elsewhere
            return nothing
        line = text.rfind("\n", 0, name.start) + 1
        alone = not text[line : name.start].strip()
        rest = _LINE_REST.match(text, where.end)
        own_line = Span(line, rest.end()) if alone and rest else nothing
        if not _is_flow(text, self.document.spans.get(key[:-1])):
            return own_line
        after = _behind_blanks(text, where.end)
        if text.startswith(",", after):
            inline = Span(name.start, _behind_blanks(text, after + 1))
            return inline if own_line == nothing else own_line
        comma = self.comma_behind(before)
        if comma is not None and not text[comma + 1 : name.start].strip():
            return Span(comma, where.end)
        return Span(name.start, where.end)

    def comma_behind(self, key: Key) -> int | None:
        """The comma behind an entry, None where there is none."""
        span = self.document.spans.get(key) if key else None
        at = _behind_blanks(self.source.text, span[1]) if span else -1
        return at if span and self.source.text.startswith(",", at) else None


def _is_flow(text: str, parent: tuple[int, int] | None) -> bool:
    """Whether the table around an entry is written in braces."""
    return parent is not None and bool(_OPENED.match(text, parent[0]))


def _behind_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def _unresolved(document: Document, key: Key, value: str) -> Finding:
    reason = "names a value that this file does not hold"
    message = f"{dotted(key)} = {value}: {reason}; it is not known"
    found = document.finding(key, message, reason=reason, severity=Severity.INFO)
    return found.replace(code="CFG106")


def _twice(document: Document, key: Key) -> Finding:
    reason = "stands twice; the last counts"
    return document.finding(
        key, f"{dotted(key)} {reason}", reason=reason, hint="keep one", severity=Severity.WARNING
    )


def _too_many(source: Source) -> Finding:
    message = f"holds more than {_MOST_LEAVES:,} values: data, no configuration; not read"
    return Finding(message=message, severity=Severity.INFO, file=source.file, reason=message)


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
