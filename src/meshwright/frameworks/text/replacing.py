"""Ways to write another value in the place of a setting's own."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.frameworks.setting import Span
from meshwright.frameworks.text.written import plain_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.setting import Setting

_SAFE = pattern(r"[\w@%+=:,./-]*\Z")
_NUMBER = pattern(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")
_KEYWORD = pattern(r"[ \t]*[=:]\s*(?P<word>[\w.]*?)[ \t]*,?\s*\Z")
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_USE = pattern(r"[ \t\r\n\\=]*(?P<word>.*?)[ \t\r\n\\)]*\Z", re.DOTALL)


def replacements(setting: Setting, value: Any) -> Iterator[tuple[Span, str]]:
    """Stretches to replace and their new text, the best first."""
    if setting.source.syntax in ("shell", "overrides"):
        yield from _in_shell(setting, value)
        return
    syntax = setting.source.syntax
    typed = _typed(value, setting.value) if isinstance(value, str) else value
    texts = [value_text(syntax, typed)]
    texts += [value_text(syntax, value)] if isinstance(value, str) else []
    gap = " " if setting.where.start == setting.where.end else ""  # "key:" without a value
    for text in texts:
        yield setting.where, gap + text
    if syntax == "python":
        for text in texts:
            yield from _at_use(setting, text, _KEYWORD)


def _typed(text: str, before: Any) -> Any:
    """A text as a number or truth where such a value stood before."""
    if isinstance(before, str):
        return text
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.match(text):
        plain = text.replace("_", "")
        return int(plain) if plain.lstrip("+-").isdigit() else float(plain)
    return text


def _in_shell(setting: Setting, value: Any) -> Iterator[tuple[Span, str]]:
    source, where = setting.source.text, setting.where
    texts = (
        [plain_text(v) for v in value] if isinstance(value, list | tuple) else [plain_text(value)]
    )
    joined = " ".join(shlex.quote(text) for text in texts)
    if setting.value is True and where == setting.key:  # a flag without a value
        yield Span(setting.key.end, setting.key.end), f" {joined}"
        return
    quote = source[where.start - 1 : where.start]
    if quote in ("'", '"') and source[where.end : where.end + 1] == quote and len(texts) == 1:
        yield where, _within(quote, texts[0])
    if all(_SAFE.match(text) for text in texts) or isinstance(value, list | tuple):
        yield where, joined
    yield from _at_use(setting, joined)
    yield where, joined
    yield where, texts[0]
    yield where, _within('"', texts[0])


def _at_use(
    setting: Setting, text: str, pattern: re.Pattern[str] = _USE
) -> Iterator[tuple[Span, str]]:
    """The word that names a variable, where the value is stated elsewhere."""
    source, whole = setting.source.text, setting.whole
    inside = whole.start <= setting.key.start and setting.key.end <= whole.end
    if not inside or whole.start <= setting.where.start < whole.end:
        return
    match = pattern.match(source[setting.key.end : whole.end][:10_000])
    if match and match.group("word"):
        start = setting.key.end + match.start("word")
        yield Span(start, start + len(match.group("word"))), text


def _within(quote: str, text: str) -> str:
    """A text as it stands between quotes of one kind."""
    if quote == "'":
        return text.replace("'", "'\\''")
    return re.sub(r'([$`"\\])', r"\\\1", text)
