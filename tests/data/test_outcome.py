"""What is said of a finished build."""

from __future__ import annotations

import json
from pathlib import Path

from meshwright.base.finding import Finding, Severity
from meshwright.data.building import build
from meshwright.data.dry import Projection
from meshwright.data.outcome import foreseen, passed_over
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


def projected(**given: object) -> list[Finding]:
    usual: dict[str, object] = {
        "is_all": True, "inputs": 1, "stored_bytes": 9, "sample_bytes": 9, "sample_documents": 4,
        "documents": 40, "text_bytes": 90, "kept": 0.0,
        "dropped": {"empty": 0.75, "language": 0.25}, "rejected": 0, "refused": (), "tokens": None,
        "sources": (), "start_s": 0.0, "cpu_seconds": 0.0, "units": 1,
        "work_bytes": 9, "output_bytes": 9,
    }  # fmt: skip
    build = Build(sources=(Source(files=("a",)),), output=Output(folder="out"))
    return list(foreseen(build, Projection(**(usual | given))))  # type: ignore[arg-type]


def test_a_dry_run_foresees_that_nothing_is_kept() -> None:
    (error,) = projected()
    assert error.severity is Severity.ERROR
    assert error.message == "no document is kept of 40 that were read: empty 30, language 10"
    (warning,) = projected(is_all=False)
    assert warning.severity is Severity.WARNING
    assert warning.message.startswith("of the sample: no document is kept of 40")
    assert projected(kept=0.25) == projected(refused=("a",)) == []
