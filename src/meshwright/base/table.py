"""What a result looks like before it is drawn: columns and rows of values, no layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: `key` names it in machine output, `title` (with its unit) on screen.

    An `optional` one is left out on a terminal that is too narrow for all of them.
    """

    key: str
    title: str
    align: Literal["left", "right"] = "left"
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row: printable `cells` by column key; `chosen` rows get the tick."""

    cells: Mapping[str, str]
    chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns over rows; a missing cell prints empty."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def widths(self) -> tuple[int, ...]:
        """Characters that each column needs, its title included."""
        return tuple(
            max([len(c.title), *(len(row.cells.get(c.key, "")) for row in self.rows)])
            for c in self.columns
        )

    def without(self, key: str) -> Table:
        """The table less one column."""
        return Table(columns=tuple(c for c in self.columns if c.key != key), rows=self.rows)


def table_of(columns: Sequence[Column], records: Sequence[Mapping[str, Any]]) -> Table:
    """A table of `records` by column key, values printed with `str`, None as empty."""
    rows = tuple(
        Row(cells={c.key: _text(record.get(c.key)) for c in columns}) for record in records
    )
    return Table(columns=tuple(columns), rows=rows)


def _text(value: Any) -> str:
    return "" if value is None else str(value)
