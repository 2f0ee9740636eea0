"""Settings that a comment states: "trainer: learning_rate=5e-5", "saved: tp 2, pp 4"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Setting, Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.setting import Source

_LABEL = pattern(r"\s*(?P<words>[A-Za-z][\w.-]*(?: [\w.-]+){0,4}?)\s*(?::(?=\s)|(?<= with)\s)")
_PAIR = pattern(r"(?P<name>[A-Za-z_][\w.]*)(?: ?= ?)(?P<value>\"[^\"]*\"|'[^']*'|[\w./+-]+)")
_CLAUSE = pattern(
    r"(?:^|[,;(])\s*(?:and )?(?P<name>[A-Za-z_]\w*) (?P<value>[\w./+-]+)\s*(?=[,;).]|$)"
)
_NO_NAME = frozenset({"no", "not", "the", "a", "an", "one", "with", "without", "all", "is"})
_CALL = pattern(r"(?P<name>[A-Za-z_][\w.]*)\((?P<inside>[^()]*)\)")
_NUMBER = pattern(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_TRUTHS = {"true": True, "false": False, "none": None, "null": None}
_NO_SETTING = frozenset({"example", "usage", "note", "todo", "eg", "run", "tip", "warning", "see"})
_SAVED = frozenset({"saved", "written", "checkpoint", "ckpt", "pretrained"})
_RESUMED = frozenset({"resume", "resumed", "resuming", "loaded", "load", "loading"})
_LARGEST_NUMBER = 30  # digits
_RANKS = r"(?:ranks?|gpus?|processes|workers?|cards?|devices?|npus?)\b"
_THEN = pattern(
    r"\b(?:saved|written|trained|checkpoint\w*|ckpt|stored)\b[^.;,\n]{0,40}?"
    rf"\b(?:by|with|on|from|of|using|at)[ ]+(?P<saved>\d{{1,6}})[ ]+{_RANKS}",
    re.IGNORECASE,
)
_NODES = pattern(
    r"\b(?:saved|written|trained|checkpoint\w*|ckpt|stored)\b[^.;,\n]{0,40}?"
    rf"\b(?:by|with|on|from|of|using)[ ]+(?P<nodes>\d{{1,4}})[ ]+nodes?[ ]*(?:x|\*|of|with)[ ]*"
    rf"(?P<saved>\d{{1,3}})(?:[ ]+{_RANKS})?",
    re.IGNORECASE,
)
_REFUSED = pattern(
    r"world size of (?P<saved>\d{1,6}) but the current (?:dp )?world size is (?P<now>\d{1,6})",
    re.IGNORECASE,
)
_CHANGE = pattern(
    rf"(?<![\w.])(?P<saved>\d{{1,6}})(?:[ ]+{_RANKS})?[ ]*(?:->|=>|\u2192|\bto\b)[ ]*"
    rf"(?P<now>\d{{1,6}})[ ]+{_RANKS}",
    re.IGNORECASE,
)
_ADAPTERS = pattern(r"(?<![\w-])(?P<four>q)?lora\b(?! ?(?:_|\.|=|:))", re.IGNORECASE)
_DENIED = pattern(
    r"\b(?:no|not|non|without|instead of|unlike|than|disable\w*|or|if|for)[ -]+(?:[\w/]+ )?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Label:
    """What a comment is about: "saved" and "resume" for checkpoints, else its own word, or "".

    `end` is where the label ends in the comment; `is_prose` if what follows states nothing.
    """

    name: str = ""
    end: int = 0
    is_prose: bool = False


def label_of(comment: str) -> Label:
    """The label before a colon ("trainer:") or of a checkpoint ("written with")."""
    match = _LABEL.match(comment[:120])
    if match is None:
        return Label()
    words = match.group("words").lower().split()
    end = match.end()
    if not _RESUMED.isdisjoint(words):
        return Label("resume", end)
    if not _SAVED.isdisjoint(words):
        return Label("saved", end)
    if not match.group().rstrip().endswith(":"):
        return Label()
    if not _NO_SETTING.isdisjoint(words):
        return Label("", end, is_prose=True)
    return Label(match.group("words") if len(words) == 1 else "", end)


def remarked_settings(source: Source, span: Span, label: Label) -> list[Setting]:
    """The settings of one comment, named with its label before them."""
    if label.is_prose:
        return []
    start = span.start + label.end
    if label.end and source.text[start : span.end].lstrip().startswith("--"):
        return _flags(source, Span(start, span.end), label.name)
    found: dict[int, Setting] = {}
    for prefix, name, value in _pairs(source.text, start, span.end, label):
        text = source.text[value.start : value.end]
        setting = Setting(
            name=f"{prefix}.{_text(source, name)}" if prefix else _text(source, name),
            spelled=_text(source, name),
            value=_typed(text),
            source=source,
            key=name,
            where=value,
            whole=Span(name.start, name.start),
        )
        found.setdefault(name.start, setting)
    return list(found.values())


def told_settings(source: Source, span: Span) -> tuple[list[Setting], list[Span]]:
    """What the words of a comment tell: ranks of a saved run, adapters that train.

    The second are places of numbers that speak of another run than this one.
    """
    found: list[Setting] = []
    others: list[Span] = []
    for match in _NODES.finditer(source.text, span.start, span.end):
        where = Span(*match.span("saved"))
        others.append(Span(match.start("nodes"), match.end()))
        count = int(match["nodes"]) * int(match["saved"])
        found.append(_told(source, "saved.num_gpus", count, where))
    for match in _REFUSED.finditer(source.text, span.start, span.end):
        for name, group in (("saved.dp", "saved"), ("resume.dp", "now")):
            found.append(_told(source, name, int(match[group]), Span(*match.span(group))))
        others.append(Span(*match.span()))
    for phrase in (_THEN, _CHANGE):
        for match in phrase.finditer(source.text, span.start, span.end):
            where = Span(*match.span("saved"))
            others.append(where)
            found.append(_told(source, "saved.num_gpus", int(match["saved"]), where))
    for match in _ADAPTERS.finditer(source.text, span.start, span.end):
        if _DENIED.search(source.text[max(span.start, match.start() - 24) : match.start()]):
            continue
        where = Span(*match.span())
        found.append(_told(source, "finetuning_type", "lora", where))
        if match["four"]:
            found.append(_told(source, "load_in_4bit", value=True, where=where))
        break
    return found, others


def _told(source: Source, name: str, value: Any, where: Span) -> Setting:
    return Setting(
        name=name,
        spelled=name,
        value=value,
        source=source,
        key=where,
        where=where,
        whole=Span(where.start, where.start),
    )


def _text(source: Source, span: Span) -> str:
    return source.text[span.start : span.end]


def _pairs(text: str, start: int, end: int, label: Label) -> Iterator[tuple[str, Span, Span]]:
    """Prefix, name and value of what is stated; a lone `a=b` is code commented out."""
    for call in _CALL.finditer(text, start, end):
        for pair in _PAIR.finditer(text, *call.span("inside")):
            yield (label.name or call.group("name")), *_spans(pair)
    pairs = [p for p in _PAIR.finditer(text, start, end) if not _continues(text, p.end(), end)]
    if label.end or len(pairs) > 1:
        for pair in pairs:
            yield label.name, *_spans(pair)
    said = text[start:end]
    for clause in _CLAUSE.finditer(said):
        if clause.group("name").lower() in _NO_NAME:
            continue
        literal = _NUMBER.match(clause.group("value")) or clause.group("value").lower() in _TRUTHS
        if label.name or ("_" in clause.group("name") and literal):
            yield label.name, *_spans(clause, start)


def _spans(match: re.Match[str], at: int = 0) -> tuple[Span, Span]:
    """The places of name and value of a match in a text that starts at `at`."""
    name, value = match.span("name"), match.span("value")
    return Span(at + name[0], at + name[1]), Span(at + value[0], at + value[1])


def _continues(text: str, at: int, end: int) -> bool:
    """Whether a value goes on as a formula."""
    return text[at:end].lstrip()[:1] in tuple("*/+(")


def _typed(text: str) -> Any:
    if text[:1] in "'\"":
        return text[1:-1]
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    if _NUMBER.match(text) and len(text) <= _LARGEST_NUMBER:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    return text


def _flags(source: Source, span: Span, label: str) -> list[Setting]:
    """The flags of a comment such as "saved with: --tensor-model-parallel-size 4"."""
    from meshwright.frameworks.text.shell.script import settings_in

    return [
        item.replace(
            name=f"{label}.{item.name.lstrip('-')}" if label else item.name,
            whole=Span(item.key.start, item.key.start),
        )
        for item in settings_in(source, span)
    ]
