"""Elements of HTML, made so that no text can become markup.

Whatever is no `Html` is text and is escaped where it is put into an element; only `element` and
`joined` make `Html`.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from meshwright.report.check.visible import harmless
from meshwright.report.diagnosis.figures import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable

_EMPTY = frozenset({"meta", "br", "input"})  # elements without an end


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str) -> Html:
    """An element; `class_` is the attribute class, and in names _ stands for -."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(harmless(encodable(value)))}"'
        for name, value in attributes.items()
    )
    if tag in _EMPTY:
        return Html(f"<{tag}{named}>")
    return Html(f"<{tag}{named}>{joined(children)}</{tag}>")


def joined(children: Iterable[str]) -> Html:
    """Elements and texts one after the other."""
    return Html("".join(_safe(child) for child in children))


def _safe(child: str) -> str:
    return child if isinstance(child, Html) else escape(harmless(encodable(child)))
