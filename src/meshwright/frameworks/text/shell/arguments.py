"""Arguments of a command into settings: flags with their values, and overrides."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import UNKNOWN, Setting, Span
from meshwright.frameworks.text.shell.expand import Argument, Bit, looks_like_list

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from meshwright.frameworks.setting import Source
    from meshwright.frameworks.text.shell.expand import Tag

_FLAG = pattern(r"--?[A-Za-z_][^=\s]*")
_OVERRIDE = pattern(r"[+~]{0,2}([A-Za-z_][\w@/-]*(?:\.[\w@/*-]+)*)=")
_DELETION = pattern(r"~([A-Za-z_][\w@/-]*(?:\.[\w@/-]+)*)$")
_BETWEEN = pattern(r"(?:[ \t\r\n\"']|\\\r?\n)*\Z")
_LINE_END = pattern(r"[ \t]*(\\)?(?:\r?\n|\Z)")


@dataclass(frozen=True, slots=True)
class Stated:
    """A setting with the branches of the script in which it stands."""

    setting: Setting
    branches: frozenset[Tag] = frozenset()


def settings_of(arguments: Sequence[Argument], source: Source) -> list[Stated]:
    """The settings among arguments, in order; what is neither flag nor override is passed over."""
    found: list[Stated] = []
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        at += 1
        head = argument.bits[0].text if argument.bits else None
        if head is None:
            continue
        if flag := _FLAG.match(head):
            values, name = [], argument
            if head[flag.end() : flag.end() + 1] == "=":
                name, value = cut(argument, flag.end())
                values = [value]
                parts = [written(argument)]
            else:
                values = values_from(arguments, at)
                at += len(values)
                parts = [written(argument), *map(written, values)]
            found.append(flag_setting(name, values, cutting(source.text, parts), source))
        elif override := _OVERRIDE.match(head):
            found.append(_override(argument, override, source))
        elif deletion := _DELETION.match(head):
            found.append(_deletion(argument, deletion.group(1), source))
    return found


def is_flag(argument: Argument) -> bool:
    """Whether an argument starts as a flag does ("-1" is a number)."""
    return bool(argument.bits and argument.bits[0].text and _FLAG.match(argument.bits[0].text))


def is_override(argument: Argument) -> bool:
    """Whether an argument is `a.b=c`, with a dot so that it is no plain value."""
    head = argument.bits[0].text if argument.bits else None
    if head and _DELETION.match(head):
        return True
    match = _OVERRIDE.match(head) if head else None
    return match is not None and ("." in match.group(1) or (head or "")[0] in "+~")


def values_from(arguments: Sequence[Argument], at: int) -> list[Argument]:
    """The arguments from `at` on that are values of the flag before them."""
    end = at
    while end < len(arguments):
        argument = arguments[end]
        unknown_list = argument.text is None and looks_like_list(argument)
        if is_flag(argument) or is_override(argument) or unknown_list:
            break
        end += 1
    return list(arguments[at:end])


def cut(argument: Argument, at: int) -> tuple[Argument, Argument]:
    """Name and value of an argument with "=" at `at` of its first bit."""
    first = argument.bits[0]
    text = first.text or ""
    head = _part(first, 0, at)
    rest = _part(first, at + 1, len(text))
    tail = ((rest,) if rest.text else ()) + argument.bits[1:]
    return replace(argument, bits=(head,), word=None), replace(
        argument, bits=tail or (rest,), word=None
    )


def _part(bit: Bit, start: int, end: int) -> Bit:
    text = (bit.text or "")[start:end]
    if bit.where.end - bit.where.start != len(bit.text or ""):
        return replace(bit, text=text)
    where = Span(bit.where.start + start, bit.where.start + end)
    return replace(bit, text=text, where=where, site=where if bit.site == bit.where else bit.site)


def flag_setting(flag: Argument, values: Sequence[Argument], whole: Span, source: Source) -> Stated:
    """The setting of a flag: True without values, a text for one, a list of texts for more."""
    texts: list[Any] = [UNKNOWN if v.readable is None else v.readable for v in values]
    value: Any = True if not texts else texts[0] if len(texts) == 1 else texts
    if isinstance(value, list) and UNKNOWN in value:
        value = UNKNOWN
    name = flag.bits[0].text or ""
    where = _hull([v.where for v in values]) if values else flag.where
    setting = Setting(
        name=name,
        spelled=name,
        value=value,
        source=source,
        key=flag.where,
        where=where,
        whole=whole,
    )
    return Stated(setting, flag.branches.union(*(v.branches for v in values)))


def _override(argument: Argument, match: re.Match[str], source: Source) -> Stated:
    head, value = cut(argument, match.end() - 1)
    text: Any = UNKNOWN if value.readable is None else _unquoted(value.readable)
    setting = Setting(
        name=match.group(1),
        spelled=head.bits[0].text or "",
        value=None if text == "null" else text,
        source=source,
        key=head.where,
        where=value.where,
        whole=cutting(source.text, [written(argument)]),
    )
    return Stated(setting, argument.branches)


def _deletion(argument: Argument, name: str, source: Source) -> Stated:
    setting = Setting(
        name=name,
        spelled="~" + name,
        value=None,
        source=source,
        key=argument.where,
        where=argument.where,
        whole=cutting(source.text, [written(argument)]),
    )
    return Stated(setting, argument.branches)


def _unquoted(text: str) -> str:
    """A text without the quotes that an override's own grammar takes off."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _hull(spans: Sequence[Span]) -> Span:
    """The stretch from the first to the last span, or the first alone if they are not in order."""
    first, last = spans[0], spans[-1]
    in_order = all(a.end <= b.start for a, b in pairwise(spans))
    return Span(first.start, last.end) if in_order else first


def written(argument: Argument) -> Span:
    """Where an argument is written, with its quotes."""
    site, word = argument.site, argument.word
    inside = word is not None and word.start <= site.start and site.end <= word.end
    return word if word is not None and inside else site


def cutting(text: str, parts: Sequence[Span]) -> Span:
    """What must go when an argument goes: its line where it has one, else its blanks before.

    Empty where its parts do not stand side by side (a flag and its value in two variables).
    """
    parts = list(dict.fromkeys(parts))
    for left, right in pairwise(parts):
        gap = text[left.end : right.start]
        if left.end > right.start or len(gap) > 1000 or not _BETWEEN.match(gap):
            return Span(parts[0].start, parts[0].start)
    start, end = parts[0].start, parts[-1].end
    line = text.rfind("\n", 0, start) + 1
    rest = _LINE_END.match(text, end)
    if text[line:start].strip():
        return Span(line + len(text[line:start].rstrip(" \t")), end)
    if rest is None:
        after = end
        while text[after : after + 1] in (" ", "\t"):
            after += 1
        return Span(start, after)
    before = text[:line].rstrip("\r\n")
    if rest.group(1) or not before.endswith("\\"):
        return Span(line, rest.end())
    return Span(len(before[:-1].rstrip(" \t")), end)
