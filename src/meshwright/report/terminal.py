"""Pages on a terminal, laid out by rich; colors follow NO_COLOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.base.table import Table
    from meshwright.report.page import Block

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue", "hint": "bold cyan"}


def draw(blocks: Iterable[Block], stream: TextIO, *, width: int | None = None) -> None:
    """Prints blocks to a terminal; `width` defaults to the terminal's."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    for block in blocks:
        console.print(_text(block) if isinstance(block, str) else _table(block))


def _text(line: str) -> Text:
    """A line, its leading severity word colored."""
    text = Text(line)
    for word, style in _STYLES.items():
        if line.startswith((f"{word}:", f"{word}[")):
            text.stylize(style, 0, line.index(":") + 1)
    return text


def _table(table: Table) -> RichTable:
    """Columns without lines around them; cells fold instead of being cut."""
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        drawn.add_column(column.title, justify=column.align, overflow="fold")
    for row in table.rows:
        cells = (Text(row.cells.get(column.key, "")) for column in table.columns)
        drawn.add_row(*cells, style="bold" if row.chosen else "")
    return drawn
