"""Tables and bars of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.diagnosis.html.elements import Html, element, joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.base.table import Table


def table_html(table: Table, *, bars: Mapping[str, Sequence[float]] | None = None) -> Html:
    """A table of the page; a column in `bars` gets, behind each cell, a bar of that share."""
    head = element(
        "tr", *(element("th", c.title, scope="col", class_=c.align) for c in table.columns)
    )
    rows = []
    for number, row in enumerate(table.rows):
        cells = []
        for column in table.columns:
            text = row.cells.get(column.key, "")
            shares = (bars or {}).get(column.key, ())
            inner = bar_behind(text, shares[number]) if number < len(shares) else Html("")
            cells.append(element("td", inner or text, class_=column.align))
        rows.append(element("tr", *cells))
    body = element("tbody", *rows)
    return element("div", element("table", element("thead", head), body), class_="scroll")


def bar_behind(text: str, share: float) -> Html:
    """A text with a bar behind it."""
    width = f"width:{100 * min(max(share, 0.0), 1.0):.2f}%"
    return element("div", element("i", style=width), element("span", text), class_="behind")


def stacked(parts: Sequence[tuple[str, str, float, str]], *, label: str) -> Html:
    """A bar of parts: for each its class, its title, its share, and a text to show if it fits."""
    pieces = [
        element(
            "div",
            text if share >= _ROOM * len(text) else "",
            class_=f"piece {kind}",
            style=f"width:{100 * share:.3f}%",
            title=title,
        )
        for kind, title, share, text in parts
    ]
    return element("div", *pieces, class_="stacked", role="img", aria_label=label)


_ROOM = 0.0085  # of the width that one character takes


def section(ident: str, title: str, *children: str, note: str = "") -> Html:
    """A section with its heading and a line on how to read it."""
    told = element("p", note, class_="note") if note else Html("")
    return element("section", element("h2", title), told, joined(children), id=ident)
