"""Findings as text: place, frame, reason and hint; and as records."""

from __future__ import annotations

from meshwright.base.errors import InvalidInput, MeshwrightError, UnknownName
from meshwright.base.finding import Finding, Severity, exit_code
from meshwright.report.findings import (
    error_lines,
    finding_lines,
    finding_record,
    findings_lines,
)


def test_a_finding_shows_the_line_it_is_about(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text("[plan]\ntp = 4.5  # half\n")
    finding = Finding(
        message="plan.tp = 4.5: is not a whole number",
        file=str(path),
        line=2,
        column=1,
        reason="is not a whole number",
        hint="the default is 1",
    )
    assert finding_lines(finding) == [
        "error: plan.tp = 4.5: is not a whole number",
        f" --> {path}:2:1",
        "  |",
        "2 | tp = 4.5  # half",
        "  | ^^^^^^^^",
        "  = help: the default is 1",
    ]


def test_a_finding_without_a_readable_file_has_no_frame():
    lines = finding_lines(Finding(message="m", file="nowhere.toml", line=3, code="MOD101"))
    assert lines == ["error[MOD101]: m", " --> nowhere.toml:3"]


def test_a_line_number_past_the_end_does_no_harm(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert finding_lines(Finding(message="m", file=str(path), line=9)) == [
        "error: m",
        f" --> {path}:9",
    ]


def test_several_findings_end_with_a_tally():
    found = [
        Finding(message="a"),
        Finding(message="b", severity=Severity.WARNING),
        Finding(message="c", reason="because"),
    ]
    lines = findings_lines(found)
    assert lines[-1] == "2 errors, 1 warning"
    assert "  = why: because" in lines


def test_errors_print_their_hint_or_their_findings():
    assert error_lines(MeshwrightError("bad", hint="do this")) == ["error: bad", "hint: do this"]
    assert error_lines(UnknownName("GPU", "H10", suggestions=["H100", "H20"])) == [
        "error: unknown GPU 'H10'",
        "hint: did you mean H100 or H20?",
    ]
    assert error_lines(InvalidInput([Finding(message="x")])) == ["error: x"]


def test_records_hold_what_json_can_hold():
    record = finding_record(Finding(message="m", value=(1, 2), severity=Severity.INFO))
    assert record["value"] == "(1, 2)"
    assert record["severity"] == "info"


def test_exit_codes():
    assert exit_code([]) == 0
    assert exit_code([Finding(message="w", severity=Severity.WARNING)]) == 0
    assert exit_code([Finding(message="e")]) == 1
