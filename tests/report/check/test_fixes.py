"""Edits: safe ones alone unless asked, never over one another, whole findings, diffs for patch."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.finding import Edit, Finding, Severity
from meshwright.report.check.fixes import MOST_PASSES, diff, fix, settle
from meshwright.report.check.report import Checked, Report

TEXT = "0123456789\n"


def edit(start, end, text="", *, safe=True, file="a"):
    return Edit(file=file, start=start, end=end, text=text, safe=safe)


def finding(*edits):
    return Finding(message="m", edits=edits)


def test_only_safe_fixes_unless_asked():
    found = [finding(edit(0, 1, "x")), finding(edit(5, 6, "y", safe=False))]
    assert fix(found, {"a": TEXT}).texts == {"a": "x123456789\n"}
    assert fix(found, {"a": TEXT}, unsafe=True).texts == {"a": "x1234y6789\n"}


def test_a_finding_with_one_unsafe_edit_is_unsafe():
    found = [finding(edit(0, 1, "x"), edit(5, 6, "y", safe=False))]
    assert fix(found, {"a": TEXT}).texts == {}


def test_notes_are_not_mended():
    note = finding(edit(0, 1, "x")).replace(severity=Severity.INFO)
    assert fix([note], {"a": TEXT}, unsafe=True).texts == {}


def test_overlapping_fixes_wait_and_equal_ones_are_done_once():
    first, overlapping, equal = finding(edit(2, 5)), finding(edit(4, 6)), finding(edit(2, 5))
    fixed = fix([first, overlapping, equal], {"a": TEXT})
    assert fixed.texts == {"a": "0156789\n"}
    assert fixed.findings == (first, equal)


def test_two_insertions_at_one_place_do_not_mix():
    fixed = fix([finding(edit(3, 3, "a")), finding(edit(3, 3, "b"))], {"a": TEXT})
    assert fixed.texts == {"a": "012a3456789\n"}
    assert len(fixed.findings) == 1


def test_one_finding_may_add_twice_at_one_place():
    fixed = fix([finding(edit(3, 3, "a"), edit(3, 3, "b"))], {"a": TEXT})
    assert fixed.texts == {"a": "012ab3456789\n"}


def test_an_insertion_may_stand_where_a_removal_begins():
    assert fix([finding(edit(3, 5), edit(3, 3, "x"))], {"a": TEXT}).texts == {"a": "012x56789\n"}


def test_a_finding_is_carried_out_whole_or_not_at_all():
    both = finding(edit(0, 1, "x"), edit(0, 1, "y", file="unknown"))
    outside = finding(edit(3, 99))
    assert fix([both, outside], {"a": TEXT}).texts == {}


def test_a_fix_that_changes_nothing_writes_nothing():
    assert fix([finding(edit(0, 1, "0"))], {"a": TEXT}).texts == {}


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch here")
@given(
    before=st.lists(st.sampled_from(["tp = 1", "pp = 2", ""]), max_size=9).map("\n".join),
    after=st.lists(st.sampled_from(["tp = 1", "pp = 4", "x"]), min_size=1, max_size=9).map(
        "\n".join
    ),
)
def test_patch_reads_the_diff(tmp_path_factory, before, after):
    folder = tmp_path_factory.mktemp("patched")
    (folder / "a.toml").write_text(before)
    text = diff({"a.toml": before}, {"a.toml": after})
    if before != after:
        subprocess.run(["patch", "-p1", "-s"], input=text, text=True, cwd=folder, check=True)
    assert (folder / "a.toml").read_text() == after


edits = st.tuples(st.integers(0, 11), st.integers(0, 11), st.text("ab", max_size=3)).map(
    lambda e: edit(min(e[:2]), max(e[:2]), e[2])
)


@given(st.lists(st.lists(edits, min_size=1, max_size=2).map(lambda e: finding(*e)), max_size=5))
def test_what_no_edit_touches_stays(found):
    fixed = fix(found, {"a": TEXT})
    touched = {i for f in fixed.findings for e in f.edits for i in range(e.start, e.end)}
    kept = [c for i, c in enumerate(TEXT) if i not in touched]
    assert [c for c in fixed.texts.get("a", TEXT) if c not in "ab"] == kept


def checked(text, judge):
    """A report on one file whose findings `judge` makes of its text."""
    return Report(
        files=(Checked(file="a", framework="f", findings=tuple(judge(text)), sources={"a": text}),)
    )


def settled(text, judge, **options):
    return settle(checked(text, judge), lambda texts: checked(texts["a"], judge), **options)


def test_unsafe_fixes_are_made_one_at_a_time():
    """Two ways to make 8 and 2 agree: once one is taken, the other is no longer needed."""

    def judge(text):
        if "8" in text and "2" in text:
            yield finding(edit(text.index("8"), text.index("8") + 1, "2", safe=False))
            yield finding(edit(text.index("2"), text.index("2") + 1, "8", safe=False))

    result = settled("tp 8 kv 2", judge, unsafe=True)
    assert result.texts == {"a": "tp 2 kv 2"}
    assert (result.count, result.report.findings) == (1, ())
    assert settled("tp 8 kv 2", judge).texts == {}


def test_fixing_goes_on_while_something_is_left():
    def judge(text):
        if "xx" in text:
            yield finding(edit(text.index("xx"), text.index("xx") + 1))

    result = settled("axxxxb", judge)
    assert result.texts == {"a": "axb"}
    assert result.count == 3


def test_misspelt_keys_are_mended_before_anything_is_added_beside_them():
    """The right key may bring errors to light; it stays right."""

    def judge(text):
        if text.startswith("kye"):
            yield finding(edit(8, 8, " key 4", safe=False)).replace(code="MOD101")
            yield finding(edit(0, 3, "key")).replace(code="CFG101", severity=Severity.WARNING)
        else:
            yield from (finding(), finding())

    result = settled("kye 2 x 3", judge, unsafe=True)
    assert (result.texts, result.count) == ({"a": "key 2 x 3"}, 1)


def test_what_is_predicted_only_after_a_fix_is_left_for_its_user():
    def judge(text):
        if text[0] == "a":
            yield finding(edit(0, 1, "b", safe=False)).replace(code="MOD101")
        elif text[1] == "a":
            yield finding(edit(1, 2, "b", safe=False)).replace(code="CMP121")

    result = settled("aa", judge, unsafe=True)
    assert (result.texts, result.count) == ({"a": "ba"}, 1)
    assert [f.code for f in result.report.findings] == ["CMP121"]
    assert settled("ba", judge, unsafe=True).texts == {"a": "bb"}


def test_a_fix_that_brings_errors_is_undone():
    def judge(text):
        yield finding(edit(0, 1, "!"))
        if text.startswith("!"):
            yield from (finding(), finding())

    result = settled("a", judge)
    assert (result.texts, result.count) == ({}, 0)
    assert len(result.report.findings) == 1


def test_after_a_fix_that_was_undone_the_others_are_made():
    def judge(text):
        if "b" in text:
            yield finding(edit(0, 1, "!", safe=False)).replace(code="MOD101")
            yield finding(edit(1, 2, "c", safe=False))
        if "!" in text:
            yield from (finding(), finding())

    result = settled("ab", judge, unsafe=True)
    assert result.texts == {"a": "ac"}
    assert result.count == 1


def test_fixes_that_undo_each_other_come_to_an_end():
    def judge(text):
        yield finding(edit(0, 1, "b" if text == "a" else "a"))

    assert settled("a", judge).count == MOST_PASSES


def test_files_that_are_only_looked_at_stay():
    assert settled("a", lambda _: [finding(edit(0, 1, "b"))], untouched={"a"}).texts == {}
