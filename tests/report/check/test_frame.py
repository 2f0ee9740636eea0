"""Frames: carets under every value, several on a line, across files, long lines, tabs, CJK."""

from __future__ import annotations

import itertools
import os
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.finding import Finding, Label
from meshwright.report.check.frame import LONGEST, WINDOW, caret_rows, frame
from meshwright.report.check.texts import Texts
from meshwright.report.check.visible import harmless, width


def label(text, line, column, length=1, file="a.sh"):
    return Label(text=text, file=file, line=line, column=column, length=length)


def finding(*labels, line=None, column=None, file="a.sh"):
    first = labels[0] if labels else None
    line = first.line if line is None and first else line or 0
    column = first.column if column is None and first else column or 0
    return Finding(message="m", file=file, line=line, column=column, labels=labels)


def test_two_labels_on_two_lines():
    text = "a --tp 8 \\\n b\n c\n --kv 2\n"
    found = finding(label("tp=8 here", 1, 8), label("2 KV heads", 4, 7))
    assert frame(found, Texts({"a.sh": text})) == [
        " --> a.sh:1:8",
        "  |",
        "1 | a --tp 8 \\",
        "  |        ^ tp=8 here",
        "...",
        "4 |  --kv 2",
        "  |       ^ 2 KV heads",
    ]


def test_one_line_between_is_shown_and_neighbors_have_none():
    text = "tp = 1\npp = 2\ncp = 3\ndp = 4\n"
    rows = frame(
        finding(label("a", 1, 6), label("b", 3, 6), label("c", 4, 6)), Texts({"a.sh": text})
    )
    assert [row for row in rows if row[0].isdigit()] == [
        "1 | tp = 1",
        "2 | pp = 2",
        "3 | cp = 3",
        "4 | dp = 4",
    ]
    assert "..." not in rows


def test_several_labels_on_one_line():
    rows = frame(
        finding(label("eight", 1, 6), label("two", 1, 13), label("three", 1, 20)),
        Texts({"a.sh": "--tp 8 --kv  2 --pp 3"}),
    )
    assert rows[2:] == [
        "1 | --tp 8 --kv  2 --pp 3",
        "  |      ^      ^      ^ three",
        "  |      |      |",
        "  |      |      two",
        "  |      eight",
    ]


def test_labels_in_another_file():
    rows = frame(
        finding(label("here", 1, 1), label("there", 12, 3, file="b.json")),
        Texts({"a.sh": "8", "b.json": "\n" * 11 + '{ "n": 2 }'}),
    )
    assert rows == [
        "  --> a.sh:1:1",
        "   |",
        " 1 | 8",
        "   | ^ here",
        "  ::: b.json:12:3",
        "   |",
        '12 | { "n": 2 }',
        "   |   ^ there",
    ]


def test_labels_of_one_stretch_share_their_carets():
    rows = frame(finding(label("a", 1, 1, 2), label("b", 1, 1, 2)), Texts({"a.sh": "12"}))
    assert rows[-1] == "  | ^^ a; b"


def test_a_place_without_labels_is_marked_to_the_end_of_what_stands_there():
    rows = frame(finding(line=1, column=1), Texts({"a.sh": "tp = 4.5  # half"}))
    assert rows[-1] == "  | ^^^^^^^^"


def test_tabs_and_wide_characters_align():
    for source, column, at in (("\ttp=8", 5, 7), ("模型 tp=8", 7, 8), ("e\u0301 8", 4, 2)):
        rows = frame(finding(label("x", 1, column)), Texts({"a.sh": source}))
        assert rows[-1] == "  | " + " " * at + "^ x"
        assert width(rows[-2][4:].split("8")[0]) == at


def test_a_long_line_is_windowed_around_the_carets():
    source = "x" * 5000 + " --tp 8 " + "y" * 5000
    rows = frame(finding(label("tp", 1, 5007)), Texts({"a.sh": source}))
    shown, caret = rows[2][4:], rows[3][4:]
    assert len(shown) == WINDOW + 6
    assert shown.startswith("...")
    assert shown.endswith("...")
    assert shown[caret.index("^")] == "8"


def test_labels_far_apart_on_a_long_line_get_a_window_each():
    source = '{"tp":8,' + " " * 900 + '"kv":2}'
    rows = frame(finding(label("tp", 1, 7), label("kv", 1, 914)), Texts({"a.sh": source}))
    carets = [(a, b) for a, b in itertools.pairwise(rows) if "^" in b]
    assert [a[b.index("^")] for a, b in carets] == ["8", "2"]


def test_a_label_longer_than_the_window_is_cut_to_it():
    rows = frame(finding(label("all", 1, 1, 900)), Texts({"a.sh": "z" * 900}))
    assert rows[3].count("^") == WINDOW


def test_labels_of_an_unreadable_file_are_told_in_words():
    rows = frame(finding(label("tp=8", 3, 9), file="gone.sh"), Texts({"a.sh": ""}))
    assert rows == [" --> gone.sh:3:9", " ::: a.sh:3:9", "  = at a.sh:3:9: tp=8"]


def test_escape_sequences_of_a_file_do_not_reach_the_terminal():
    source = "tp=8 \x1b[31m\u202eevil"
    rows = frame(finding(label("\x1b]0;t\x07", 1, 4)), Texts({"a.sh": source}))
    assert not any("\x1b" in row or "\u202e" in row or "\x07" in row for row in rows)
    assert rows[2] == "1 | tp=8 \\x1b[31m\\u202eevil"
    assert harmless("a\tb\nc") == "a\tb\nc"


spans = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9), st.sampled_from(["", "aa", "bbb"])),
    min_size=1,
    max_size=6,
    unique_by=lambda span: span[0],
).map(sorted)


@given(spans)
def test_every_text_is_there_and_every_caret_in_its_column(found):
    rows = caret_rows(found)
    for at, length, _ in found:
        assert rows[0][at : at + length] == "^" * length
    for text in ("aa", "bbb"):
        assert sum(row.count(text) for row in rows) == sum(t == text for _, _, t in found)
    for at, _, text in found[:-1]:
        if text:
            assert any(row[at : at + len(text)] == text for row in rows[1:])


@given(
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=300
    ),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=4),
)
def test_any_line_and_any_places_can_be_drawn(source, places):
    labels = [label("x", 1, column, length) for column, length in places]
    rows = frame(finding(*labels, line=1, column=1), Texts({"a.sh": source}))
    assert rows
    assert all(len(row) < 6 * (LONGEST + 300) and "\n" not in row for row in rows)


@pytest.mark.parametrize("line", [0, 1, 99])
def test_no_place_or_one_past_the_end(line):
    rows = frame(Finding(message="m", file="a.sh", line=line), Texts({"a.sh": "one"}))
    assert rows[0].lstrip().startswith("--> a.sh")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_no_pipe_is_opened_to_quote_a_line(tmp_path):
    pipe = str(tmp_path / "f.jsonl")
    os.mkfifo(pipe)
    rows: list[str] = []
    read = Thread(target=lambda: rows.extend(frame(finding(line=1, file=pipe), Texts())))
    read.daemon = True  # should it wait for the pipe
    read.start()
    read.join(60)
    assert rows == [f" --> {pipe}:1"]


def test_a_file_is_not_read_for_a_finding_without_a_line(tmp_path):
    texts = Texts()
    frame(finding(file=str(tmp_path / "large")), texts)
    assert not texts
