"""Edits: safe ones alone unless asked, never over one another, whole findings, diffs for patch."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.finding import Edit, Finding, Severity
from meshwright.report.check.fixes import diff, fix

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
