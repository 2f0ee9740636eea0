"""What is said of a finished build."""

from __future__ import annotations

import json
from pathlib import Path

from meshwright.base.finding import Finding, Severity
from meshwright.data.building import build
from meshwright.data.outcome import passed_over
from meshwright.data.settings import Build, Decontaminate, Output, Source


def test_texts_of_test_sets_that_are_too_short_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "some text of our own"}) + "\n")
    question = "which of the following words is the last one of this question"
    records = [{"q": question, "a": "b"}, {"q": "why so", "a": "question"}]
    tests = tmp_path / "tests.jsonl"
    tests.write_text("".join(json.dumps(record) + "\n" for record in records))
    told: list[Finding] = []
    build(
        Build(
            sources=(Source(files=(str(tmp_path / "a.jsonl"),)),),
            decontaminate=Decontaminate(files=(str(tests),)),
            output=Output(folder=str(tmp_path / "out")),
        ),
        engine="inline",
        on_finding=told.append,
    )
    (finding,) = (found for found in told if "too short" in found.message)
    assert finding.message.startswith("3 texts of the test sets were too short to be sought")
    assert str(tests) in finding.message
    assert finding.severity == Severity.INFO


def test_nothing_is_said_where_all_are_sought() -> None:
    assert list(passed_over({})) == []
