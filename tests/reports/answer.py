"""What the product answers to a case: run it as a user would, read verdict and numbers off it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from given import Given, model_argument

from meshwright import api
from meshwright.base.errors import MeshwrightError

FILE = "config"  # no ending: the product tells the syntax by the text
CRASH = "crash"

# What a finding amounts to, by what its own text says happens; the first that is found.
MEANINGS = (
    ("hang", ("hang", "deadlock", "dead-lock", "never returns", "wait forever", "times out")),
    ("oom", ("out of memory", "out-of-memory", "does not fit", "do not fit", "not safe")),
    (
        "silent_wrong",
        (
            *(
                "silently",
                "wrong result",
                "wrong loss",
                "wrong gradient",
                "no error",
                "without error",
            ),
            *(
                "is ignored",
                "are ignored",
                "has no effect",
                "is dropped",
                "are dropped",
                "are lost",
            ),
            *("wrong values", "not the model", "does nothing", "is wrong", "are wrong", "overwrit"),
        ),
    ),
    ("slow", ("slow", "of the step", "per step", "stands still", "bandwidth", "bubble", "waits")),
)
MEMORY_CODES = ("CMP121", "CMP209", "CMP212", "CMP303", "MOD217")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Findings as records of the JSON report, figures by name, the recognized framework."""

    findings: tuple[Mapping[str, Any], ...]
    figures: Mapping[str, Any]
    framework: str = ""
    error: str = ""

    def of(self, *severities: str) -> tuple[Mapping[str, Any], ...]:
        """The findings of these severities."""
        return tuple(f for f in self.findings if f["severity"] in severities)


def ask(text: str, given: Given) -> Answer:
    """The product's answer to an input; its own crash is an answer too, and a wrong one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / FILE
        path.write_text(text, encoding="utf-8")
        if given.model_is_a_guess and _states_its_model(path):
            given = given.without_model()
        first = _asked(path, given, framework="")
        if first.framework in ("", "generic") and given.frameworks:
            return _asked(path, given, framework=given.frameworks[0])
        return first


def _states_its_model(path: Path) -> bool:
    """Whether the input states how many layers its model has."""
    from meshwright.frameworks.read import read_files

    try:
        return any(reading.is_stated("num_hidden_layers") for reading in read_files([path]))
    except MeshwrightError:
        return False


def _asked(path: Path, given: Given, *, framework: str) -> Answer:
    try:
        report = api.check_files(
            [path],
            model=model_argument(given.model, path.parent),
            gpus=given.gpus,
            framework=framework,
            version=given.version,
            sets=dict(given.sets),
        )
    except MeshwrightError as error:
        return Answer(findings=(), figures={}, error=str(error))
    except Exception as error:  # a traceback is the worst answer, but an answer
        return Answer(findings=(), figures={}, error=f"{CRASH}: {error!r}")
    return answer_of(report)


def answer_of(report: Any) -> Answer:
    """The answer in a report."""
    from meshwright.report.findings import finding_record

    checked = report.files
    return Answer(
        findings=tuple(finding_record(f) for f in report.findings),
        figures={n: v for one in checked for n, v in one.figures.items()},
        framework=checked[0].framework if checked else "",
        error=next((one.error for one in checked if one.error), ""),
    )


def words_of(finding: Mapping[str, Any]) -> str:
    """All that a finding says, in one text."""
    labels = [str(label.get("text", "")) for label in finding.get("labels") or ()]
    names = ("message", "reason", "consequence", "hint", "key")
    notes = [str(note) for note in finding.get("notes") or ()]
    return " ".join([*(str(finding.get(n) or "") for n in names), *labels, *notes])


def meanings_of(finding: Mapping[str, Any]) -> set[str]:
    """What a finding amounts to: error or warn, and hang, oom, silent_wrong or slow by its text."""
    level = {"error": "error", "warning": "warn"}.get(str(finding["severity"]), "note")
    if level == "note":
        return {level}
    said = words_of({**finding, "hint": "", "notes": ()}).lower()
    found = {name for name, words in MEANINGS if any(word in said for word in words)}
    if finding.get("code") in MEMORY_CODES or "memory" in str(finding.get("code")):
        found.add("oom")
    return {level, *found}


def got_of(answer: Answer) -> dict[str, Any]:
    """The verdict of an answer for the report: the gravest finding, and all codes by severity."""
    if answer.error:
        return {"verdict": "unreadable", "error": answer.error}
    errors, warnings = answer.of("error"), answer.of("warning")
    gravest = (*errors, *warnings)[:1]
    kinds = sorted(meanings_of(gravest[0])) if gravest else ["ok"]
    return {
        "verdict": "/".join(kinds),
        "framework": answer.framework,
        "errors": {str(f["code"]): f["message"] for f in errors},
        "warnings": {str(f["code"]): f["message"] for f in warnings},
    }
