"""Pages: away from a terminal nothing is wrapped, cut or colored; on one, rich lays them out."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.table import Column, Row, Table, table_of
from meshwright.report.page import plain, show
from meshwright.report.terminal import draw, fitted_widths, narrowed

WIDE = "x" * 300
TABLE = Table(
    columns=(Column(key="a", title="name"), Column(key="b", title="GiB", align="right")),
    rows=(
        Row(cells={"a": WIDE, "b": "1.5"}, chosen=True),
        Row(cells={"a": "short", "b": "12345.0"}),
        Row(cells={"a": "[red]not markup[/red]"}),
    ),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("columns", ["1", "17", "80", "10000"])
@pytest.mark.parametrize("color", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}, {"TERM": "dumb"}])
def test_away_from_a_terminal_a_page_is_the_same_everywhere(monkeypatch, columns, color):
    monkeypatch.setenv("COLUMNS", columns)
    for name, value in color.items():
        monkeypatch.setenv(name, value)
    stream = io.StringIO()
    show(["first line", TABLE], stream)
    assert stream.getvalue() == (
        "first line\n"
        f"name{' ' * 296}{' ' * 2}    GiB\n"
        f"{WIDE}      1.5\n"
        f"short{' ' * 295}  12345.0\n"
        "[red]not markup[/red]\n"
    )


def test_a_dumb_terminal_gets_the_plain_page(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    show([TABLE], stream)
    assert WIDE in stream.getvalue()


def drawn(blocks, width, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    draw(blocks, stream, width=width)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


def test_a_terminal_wraps_between_words_and_loses_nothing(monkeypatch):
    columns = (Column(key="a", title="name"), Column(key="b", title="long title", align="right"))
    words = "several words of different lengths"
    table = table_of(columns, [{"a": words, "b": "1,234"}, {"a": "[red]no markup[/red]"}])
    text = drawn(["error: something", table], 32, monkeypatch)
    assert max(map(len, text.splitlines())) <= 32
    assert {*words.split(), "1,234", "[red]no", "markup[/red]"} <= set(text.split())


def test_a_table_too_wide_for_any_wrapping_is_printed_whole(monkeypatch):
    assert f"{WIDE}      1.5" in drawn([TABLE], 40, monkeypatch)
    assert fitted_widths(TABLE, 40) is None


def test_a_narrow_terminal_leaves_optional_columns_out_and_says_so(monkeypatch):
    columns = (
        Column(key="a", title="name"),
        Column(key="b", title="GiB", optional=True),
        Column(key="c", title="price", optional=True),
    )
    table = table_of(columns, [{"a": "abcdefgh", "b": "12345678", "c": "123456789"}])
    assert narrowed(table, 80) == (table, [])
    assert narrowed(table, 25)[1] == ["price"]
    assert narrowed(table, 12)[1] == ["GiB", "price"]
    assert narrowed(table, 5) == (table, [])
    wordy = table_of(columns, [{"a": "two words", "b": "1", "c": "a price in words"}])
    assert narrowed(wordy, 28)[1] == ["price"]  # rather than two lines a row
    assert narrowed(wordy, 8)[1] == ["GiB", "price"]
    text = drawn([table], 25, monkeypatch)
    assert "12345678" in text
    assert "123456789" not in text
    assert "(a wider terminal also" in text


@given(st.integers(10, 60))
def test_widths_fit_and_split_no_word(available):
    columns = tuple(Column(key=k, title=k * 3) for k in "abc")
    table = table_of(columns, [{"a": "one two three", "b": "four", "c": "five six"}])
    widths = fitted_widths(table, available)
    if widths is None:
        assert available < 5 + 4 + 4 + 3 * 2
    else:
        assert sum(widths) + 3 * 2 <= available
        assert all(w >= low for w, low in zip(widths, (5, 4, 4), strict=True))


def test_no_color_takes_color_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    draw(["error: something"], stream, width=40)
    assert "\x1b[31m" not in stream.getvalue()
    assert "\x1b[1;31m" not in stream.getvalue()
    monkeypatch.delenv("NO_COLOR")
    colored = Terminal()
    draw(["error: something"], colored, width=40)
    assert "31m" in colored.getvalue()


@given(st.lists(st.lists(st.text("abc |", max_size=6), min_size=2, max_size=2), max_size=5))
def test_columns_are_aligned_and_complete(rows):
    columns = (Column(key="l", title="left"), Column(key="r", title="right", align="right"))
    table = table_of(columns, [{"l": left, "r": right} for left, right in rows])
    lines = plain([table]).splitlines()
    assert len(lines) == len(rows) + 1
    start = sum(table.widths()[:1]) + 2
    for line, (left, right) in zip(lines[1:], rows, strict=True):
        assert line[: len(left)].rstrip() == left.rstrip()
        assert line[start:].strip() == right.strip()
