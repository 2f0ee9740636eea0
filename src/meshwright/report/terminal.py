"""Pages on a terminal, laid out by rich; colors follow NO_COLOR."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from meshwright.report.page import GAP, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.base.table import Column, Table
    from meshwright.report.page import Block

NARROWEST = 20  # columns; a page is laid out no narrower
_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue", "hint": "bold cyan"}


def draw(blocks: Iterable[Block], stream: TextIO, *, width: int | None = None) -> None:
    """Prints blocks to a terminal; `width` defaults to the terminal's."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False, width=width)
    if console.width < NARROWEST:  # COLUMNS=0, or a terminal that has no size
        console.width = NARROWEST
    for block in blocks:
        if isinstance(block, str):
            console.print(_text(block))
        else:
            _print_table(block, console)


def _text(line: str) -> Text:
    """A line, its leading severity word colored."""
    text = Text(line)
    for word, style in _STYLES.items():
        if line.startswith((f"{word}:", f"{word}[")):
            text.stylize(style, 0, line.index(":") + 1)
    return text


def _print_table(table: Table, console: Console) -> None:
    """Cells wrapped between words, optional columns left out where they do not fit.

    What even so is too wide is printed in whole lines for the terminal to break.
    """
    table, hidden = narrowed(table, console.width)
    widths = fitted_widths(table, console.width)
    if widths is None:
        for line in table_lines(table):
            console.print(line, soft_wrap=True)
        return
    drawn = RichTable(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for column, width in zip(table.columns, widths, strict=True):
        drawn.add_column(column.title, justify=column.align, overflow="fold", width=width)
    for row in table.rows:
        cells = (Text(row.cells.get(column.key, "")) for column in table.columns)
        drawn.add_row(*cells, style="bold" if row.chosen else "")
    console.print(drawn)
    if hidden:
        console.print(f"(a wider terminal also shows {', '.join(hidden)})")


def narrowed(table: Table, available: int) -> tuple[Table, list[str]]:
    """The table less the optional columns that it takes to fit, last first, and their titles.

    Rows of one line are preferred, then rows with few enough columns to wrap between words; a table
    for which neither can be had stays whole.
    """
    steps: list[tuple[Table, list[str]]] = [(table, [])]
    for column in reversed([c for c in table.columns if c.optional]):
        less, hidden = steps[-1]
        steps.append((less.without(column.key), [column.title, *hidden]))
    flat = (s for s in steps if _natural_width(s[0]) <= available)
    wrapped = (s for s in steps if fitted_widths(s[0], available) is not None)
    return next(flat, None) or next(wrapped, None) or steps[0]


def _natural_width(table: Table) -> int:
    widths = table.widths()
    return sum(widths) + len(GAP) * len(widths)


def fitted_widths(table: Table, available: int) -> list[int] | None:
    """Column widths that fit into `available` without splitting a word, None if there are none.

    The column that has most to spare beyond its longest word gives way first.
    """
    widths = list(table.widths())
    least = [_longest_word(table, column) for column in table.columns]
    room = available - len(GAP) * len(widths)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        spare = [width - low for width, low in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return widths


def _longest_word(table: Table, column: Column) -> int:
    texts = (column.title, *(row.cells.get(column.key, "") for row in table.rows))
    return max((len(word) for text in texts for word in text.split()), default=0)
