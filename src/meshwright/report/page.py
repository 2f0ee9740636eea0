"""Pages: lines of text and tables, drawn plain or for a terminal.

Away from a terminal nothing is wrapped, cut or colored, whatever COLUMNS says, so that a transcript
is the same everywhere and every cell can be parsed. On a terminal rich lays the page out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from meshwright.base.table import Column, Row, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

Block = str | Table
GAP = "  "


def plain(blocks: Iterable[Block]) -> str:
    """The page as text: one line for each string, tables in aligned columns."""
    lines: list[str] = []
    for block in blocks:
        lines += block.split("\n") if isinstance(block, str) else table_lines(block)
    return "".join(line.rstrip() + "\n" for line in lines)


def table_lines(table: Table) -> list[str]:
    """Title line and one line a row; cells are padded, never cut."""
    widths = table.widths()
    titles = {column.key: column.title for column in table.columns}
    return [_line(table.columns, widths, row) for row in (Row(cells=titles), *table.rows)]


def _line(columns: tuple[Column, ...], widths: tuple[int, ...], row: Row) -> str:
    cells = (
        row.cells.get(c.key, "").rjust(w)
        if c.align == "right"
        else row.cells.get(c.key, "").ljust(w)
        for c, w in zip(columns, widths, strict=True)
    )
    return GAP.join(cells).rstrip()


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream shows a page to a person: a terminal that is not a dumb one."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def show(blocks: Iterable[Block], stream: TextIO) -> None:
    """Prints a page to a stream: plain, or by rich on a terminal."""
    if not is_terminal(stream):
        stream.write(plain(blocks))
        return
    from meshwright.report.terminal import draw

    draw(blocks, stream)
