"""Every format holds every finding, and is what its readers expect."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.finding import Edit, Finding, Label, Severity
from meshwright.report.check import FORMATS, render
from meshwright.report.check.report import Checked, Report, exit_code, is_fixable
from meshwright.report.check.texts import Texts

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads((Path(__file__).parent / "schema" / "sarif-schema-2.1.0.json").read_text())
SARIF = jsonschema.Draft4Validator(SCHEMA)


def test_text(report, texts):
    assert (
        render(report, texts, form="text")
        == """\
error[MOD102]: 2 KV heads do not divide by tp 8
 --> train.sh:3:32
  |
3 |   --tensor-model-parallel-size 8 \\
  |                                ^ tp=8 here
 ::: config.json:2:26
  |
2 |   "num_key_value_heads": 2
  |                          ^ 2 KV heads there
  = consequence: AssertionError: num_query_groups must be divisible
  = sure: seen when the framework ran (megatron-core 0.14, transformer_config.py)
  = note: transformers replicates the heads instead
  = help: --tensor-model-parallel-size 2

warning[COM203]: overlap of tp without user buffers
 --> train.sh:5:23
  |
5 |   --sequence-parallel --tp-comm-overlap \\
  |                       ^^^^^^^^^^^^^^^^^ no effect
  = sure: follows from arithmetic
  = help: remove it

info[CFG202]: 18% slower than tp 4 pp 2
 --> train.sh

error: cannot read 'gone.sh': No such file or directory
 --> gone.sh

train.sh: megatron-lm, 64 GPUs: tp 8 x pp 1 x dp 8
Found 2 errors, 1 warning, 1 note in 2 files (1 fixable with --fix, 1 more with --unsafe-fixes)
2 other files of no known framework
1 file could not be read
next: meshwright explain MOD102
"""
    )


def test_concise(report, texts):
    assert render(report, texts, form="concise").splitlines() == [
        "train.sh:3:32: error MOD102 2 KV heads do not divide by tp 8",
        "train.sh:5:23: warning COM203 [*] overlap of tp without user buffers",
        "train.sh: info CFG202 18% slower than tp 4 pp 2",
        "gone.sh: error cannot read 'gone.sh': No such file or directory",
    ]


def test_json(report, texts):
    record = json.loads(render(report, texts, form="json"))
    assert record["version"] == 1
    assert [f["error"] != "" for f in record["files"]] == [False, False, True]
    assert record["skipped"] == ["notes.yaml", "package.json"]
    first, second, *_ = record["findings"]
    assert first["labels"][1] == {
        "text": "2 KV heads there",
        "file": "config.json",
        "line": 2,
        "column": 26,
        "length": 1,
    }
    assert (first["fixable"], second["fixable"]) == (False, True)
    assert second["edits"][0]["safe"] is True
    assert record["statistics"][1] == {
        "code": "CFG202",
        "severity": "info",
        "count": 1,
        "fixable": 0,
        "title": "Distance from the best plan",
    }


def test_markdown(report, texts):
    page = render(report, texts, form="markdown")
    assert "**error MOD102**: 2 KV heads do not divide by tp 8 at `train.sh:3:32`" in page
    assert "| `train.sh` | megatron-lm, 64 GPUs: tp 8 x pp 1 x dp 8 |" in page
    assert page.count("```text") == 4
    assert page.count("\n```\n") == 4
    assert "transformer\\_config.py" in page


def test_markdown_of_backticks_and_tables():
    nasty = Finding(message="a | b\n# c <script>", file="x`y.sh", line=1, column=1)
    report = Report(files=(Checked(file="x`y.sh", framework="f", findings=(nasty,)),))
    page = render(report, Texts({"x`y.sh": "````"}), form="markdown")
    assert "a \\| b \\# c \\<script\\>" in page
    assert "`````text" in page
    assert "`` x`y.sh:1:1 ``" in page


def test_github(report, texts):
    lines = render(report, texts, form="github").splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(
        "::error file=train.sh,line=3,col=32,endColumn=33,title=meshwright MOD102::2 KV heads do"
    )
    assert "%0Aconsequence: AssertionError" in lines[0]
    assert lines[1].startswith("::warning ")
    assert lines[2].startswith("::notice file=train.sh,title=meshwright CFG202::")
    assert lines[3].startswith("::error file=gone.sh,title=meshwright::cannot read")


def test_github_escapes_what_would_end_a_command():
    bad = Finding(message="50% a\n::set-output name=x::y", file="a,b:c.sh")
    report = Report(files=(Checked(file="a", findings=(bad,)),))
    assert render(report, Texts({"a,b:c.sh": ""}), form="github") == (
        "::error file=a%2Cb%3Ac.sh,title=meshwright::50%25 a%0A::set-output name=x::y\n"
    )


def test_gitlab(report, texts):
    issues = json.loads(render(report, texts, form="gitlab"))
    assert [i["severity"] for i in issues] == ["critical", "major", "info", "critical"]
    assert issues[0]["location"] == {"path": "train.sh", "lines": {"begin": 3}}
    assert all(i["description"] and i["check_name"] for i in issues)
    assert len({i["fingerprint"] for i in issues}) == 4


def test_a_fingerprint_survives_lines_added_above(report, texts):
    before = json.loads(render(report, texts, form="gitlab"))[0]["fingerprint"]
    moved = report.files[0].findings[0].replace(line=5)
    texts["train.sh"] = "\n\n" + texts["train.sh"]
    again = Report(files=(Checked(file="train.sh", framework="f", findings=(moved,)),))
    assert json.loads(render(again, texts, form="gitlab"))[0]["fingerprint"] == before


def test_sarif(report, texts):
    log = json.loads(render(report, texts, form="sarif"))
    SARIF.validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["CFG202", "COM203", "MOD102", "meshwright"]
    assert "heads" in rules[2]["help"]["text"]
    first, second, *_ = run["results"]
    assert rules[first["ruleIndex"]]["id"] == first["ruleId"] == "MOD102"
    region = first["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 3, "startColumn": 32, "endColumn": 33}
    assert (
        first["relatedLocations"][1]["physicalLocation"]["artifactLocation"]["uri"] == "config.json"
    )
    change = second["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert change["insertedContent"] == {"text": ""}
    assert change["deletedRegion"] == {
        "startLine": 5,
        "startColumn": 22,
        "endLine": 5,
        "endColumn": 40,
    }
    assert "may change the plan" in first["fixes"][0]["description"]["text"]
    assert run["invocations"][0]["executionSuccessful"] is False


def test_the_schema_refuses_what_is_no_sarif(report, texts):
    log = json.loads(render(report, texts, form="sarif"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        SARIF.validate(log)


def test_sarif_of_odd_names():
    found = Finding(message="m", file="a b/ü#1.sh", line=1)
    report = Report(files=(Checked(file="a b/ü#1.sh", framework="f", findings=(found,)),))
    log = json.loads(render(report, Texts({"a b/ü#1.sh": "x"}), form="sarif"))
    SARIF.validate(log)
    place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b/%C3%BC%231.sh"


def test_junit(report, texts):
    root = ElementTree.fromstring(render(report, texts, form="junit"))
    suites = {suite.get("name"): suite for suite in root}
    assert (suites["train.sh"].get("tests"), suites["train.sh"].get("failures")) == ("3", "2")
    failure = suites["train.sh"][0][0]
    assert failure.get("type") == "error"
    assert "^ tp=8 here" in failure.text
    assert suites["train.sh"][2][0].tag == "system-out"
    assert suites["gone.sh"].get("errors") == "1"
    assert len(suites["clean.toml"]) == 1
    assert len(suites["clean.toml"][0]) == 0


def test_exit_codes(report):
    ok, *_ = report.files[1:2]
    note = report.files[0].findings[2]
    assert exit_code(report) == 2
    assert exit_code(Report(files=report.files[:2])) == 1
    assert exit_code(Report(files=(ok,))) == 0
    assert exit_code(Report(files=(ok.replace(findings=(note,)),))) == 0
    warning = note.replace(severity=Severity.WARNING)
    assert exit_code(Report(files=(ok.replace(findings=(warning,)),))) == 1


def test_a_fix_is_safe_when_all_its_edits_are(report):
    unsafe, safe, none = report.files[0].findings
    assert [is_fixable(f) for f in (unsafe, safe, none)] == [False, True, False]
    assert [is_fixable(f, unsafe=True) for f in (unsafe, safe, none)] == [True, True, False]


words = st.text(max_size=12)
lines = st.integers(0, 4)
places = st.fixed_dictionaries(
    {"text": words, "file": st.just("f.sh"), "line": lines, "column": lines, "length": lines}
)
edits = st.builds(
    Edit, file=st.just("f.sh"), start=lines, end=lines, text=words, safe=st.booleans()
)
findings = st.builds(
    Finding,
    message=words,
    code=st.sampled_from(["", "MOD102", "ZZZ999"]),
    severity=st.sampled_from(Severity),
    file=st.sampled_from(["", "f.sh"]),
    line=lines,
    column=lines,
    value=st.one_of(st.none(), st.floats(), words, st.lists(words)),
    reason=words,
    hint=words,
    consequence=words,
    confidence=words,
    notes=st.lists(words, max_size=2).map(tuple),
    labels=st.lists(places.map(lambda p: Label(**p)), max_size=3).map(tuple),
    edits=st.lists(edits, max_size=2).map(tuple),
)


@settings(max_examples=40)
@given(found=st.lists(findings, max_size=3), text=st.text(max_size=30))
@pytest.mark.parametrize("form", FORMATS)
def test_any_finding_can_be_rendered(form, found, text):
    report = Report(files=(Checked(file="f.sh", framework="f", findings=tuple(found)),))
    rendered = render(report, Texts({"f.sh": text}), form=form)
    if form in ("json", "gitlab"):
        json.loads(rendered)
    elif form == "sarif":
        SARIF.validate(json.loads(rendered))
    elif form == "junit":
        ElementTree.fromstring(rendered)
    elif form in ("concise", "github"):
        assert len(rendered.split("\n")) == len(found) + 1
