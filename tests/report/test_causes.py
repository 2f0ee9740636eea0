"""Causes as a table, as pages and for JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from meshwright.cli.main import cli
from meshwright.diagnose.causes.rule import all_causes, find_cause
from meshwright.report.causes import NEEDS, cause_page, causes_markdown


def run(*words: str) -> str:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_cause_is_explained() -> None:
    out = run("explain", "dat901")
    assert out.startswith("DAT901: The data loader runs on the training thread")
    assert "Shown by:" in out
    assert "Source:" in out


def test_a_cause_is_explained_for_programs() -> None:
    record = json.loads(run("explain", "DAT901", "--json"))
    assert record["kind"] == "data processing"
    assert record["needs"] == ["ranks"]


def test_a_code_near_to_a_cause_is_proposed() -> None:
    result = CliRunner().invoke(cli, ["explain", "HST999"])
    assert result.exit_code
    assert "HST9" in str(result.exception)


def test_causes_are_listed() -> None:
    out = run("show", "causes")
    assert all(rule.code in out for rule in all_causes())
    some = json.loads(run("show", "causes", "checkpoint", "--json"))["causes"]
    assert {"HST902", "HST913"} <= {r["code"] for r in some} < {r.code for r in all_causes()}


def test_the_reference_has_every_cause_under_its_class() -> None:
    text = causes_markdown()
    assert text.startswith("## Model structure")
    assert all(f"### {r.code}: {r.title}" in text for r in all_causes())


@pytest.mark.parametrize("rule", all_causes(), ids=lambda r: r.code)
def test_a_page_names_what_is_needed(rule) -> None:
    page = cause_page(rule)
    assert all(NEEDS[name] in page[1] for name in rule.needs)
    assert find_cause(rule.code.lower()) is rule
