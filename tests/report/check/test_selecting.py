"""Selecting by code, and silencing by comments."""

from __future__ import annotations

import pytest

from meshwright.base.errors import UnknownName
from meshwright.base.finding import Finding, Label, Severity
from meshwright.report.check.selecting import codes_of, is_silenced, silences, wanted


def found(code, line=1, file="a.sh", **more):
    return Finding(message=code or "m", code=code, file=file, line=line, column=1, **more)


def kept(findings, **options):
    return [f.code for f in wanted(findings, **options)]


def test_codes_and_their_beginnings():
    assert codes_of(["MOD, com2", "CMP301"]) == ("MOD", "COM2", "CMP301")
    assert codes_of([]) == ()
    with pytest.raises(UnknownName) as caught:
        codes_of(["MOD99"])
    assert caught.value.suggestions


def test_select_and_ignore():
    all_ = [found("MOD101"), found("MOD201"), found("COM201")]
    assert kept(all_) == ["MOD101", "MOD201", "COM201"]
    assert kept(all_, select=("MOD",)) == ["MOD101", "MOD201"]
    assert kept(all_, ignore=("MOD",)) == ["COM201"]
    assert kept(all_, select=("MOD",), ignore=("MOD1",)) == ["MOD201"]
    assert kept(all_, select=("MOD101",), ignore=("MOD",)) == ["MOD101"]
    assert kept(all_, select=("MOD",), ignore=("MOD",)) == []


def test_an_error_without_a_code_is_never_hidden():
    broken, note = found(""), found("", severity=Severity.INFO)
    assert kept([broken, note], select=("MOD",)) == [""]
    assert kept([broken, note], ignore=("MOD",)) == ["", ""]


@pytest.mark.parametrize(
    ("comment", "code", "silent"),
    [
        ("tp 8  # meshwright: ignore[MOD101]", "MOD101", True),
        ("tp 8  # meshwright: ignore[mod1, COM]", "MOD101", True),
        ("tp 8  # meshwright: ignore[COM]", "MOD101", False),
        ("tp 8  # meshwright: ignore", "MOD101", True),
        ("tp 8  # Meshwright:ignore[MOD101] because", "MOD101", True),
        ("tp 8  # ignore[MOD101]", "MOD101", False),
    ],
)
def test_a_comment_silences_its_line(comment, code, silent):
    by = silences({"a.sh": f"{comment}\nnext\n"})
    assert is_silenced(found(code, 1), by) is silent
    assert not is_silenced(found(code, 2), by)
    assert not is_silenced(found(code, 1, file="b.sh"), by)


def test_a_comment_of_its_own_line_silences_the_file():
    by = silences({"a.sh": "x\n  # meshwright: ignore[MOD] known\ny\n"})
    assert is_silenced(found("MOD101", 3), by)
    assert is_silenced(found("MOD101", 0), by)
    assert not is_silenced(found("COM101", 3), by)
    assert not is_silenced(found("MOD101", 3, file="b.sh"), by)


def test_a_label_on_the_line_is_enough():
    label = Label(text="", file="b.sh", line=4, column=1)
    by = silences({"b.sh": "\n\n\ny # meshwright: ignore[MOD101]"})
    assert is_silenced(found("MOD101", labels=(label,)), by)
