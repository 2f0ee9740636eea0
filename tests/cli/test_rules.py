"""`rules`, `explain` and `show` list general rules, demands of frameworks, and what names mean."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from meshwright.cli.main import run
from meshwright.report.rules import all_constraints, constraints_of, rules_markdown
from meshwright.rules.demand import all_demands
from meshwright.rules.rule import all_rules


def printed(capsys, *arguments, code=0):
    assert run(list(arguments)) == code
    return capsys.readouterr()


def test_rules_lists_general_rules_and_demands(capsys):
    lines = printed(capsys, "rules").out.splitlines()
    assert len(all_rules()) + len(all_demands()) == len(lines) - 3
    listed = [line.split()[0] for line in lines[1:-2]]
    assert listed == sorted(listed)
    assert lines[-1] == f"{len(listed)} rules; next: meshwright explain CODE"


def test_rules_are_selected_by_code_and_framework(capsys):
    record = json.loads(printed(capsys, "rules", "--select", "mod1,COM201", "--format", "json").out)
    codes = {rule["code"] for rule in record["rules"]}
    assert {code[:4] for code in codes} <= {"MOD1", "COM2"}
    assert "MOD101" in codes
    for rule in record["rules"]:
        assert rule["source"]
        assert rule["doc"]


def test_rules_of_one_framework(capsys):
    demand = next(d for d in all_demands() if d.scope == "torchtitan")
    other = next(d for d in all_demands() if d.scope == "deepspeed")
    out = printed(capsys, "rules", "--framework", "torchtitan", "--format", "json").out
    listed = {(r["code"], r["scope"]) for r in json.loads(out)["rules"]}
    assert (demand.code, demand.scope) in listed
    assert (other.code, other.scope) not in listed
    assert ("MOD101", "all") in listed
    err = printed(capsys, "rules", "--framework", "torchtitn", code=2).err
    assert "torchtitan" in err


def test_a_selection_without_rules_is_refused(capsys):
    assert "no rule is left" in printed(capsys, "rules", "--select", "CFG101", code=2).err
    assert "unknown rule 'XYZ'" in printed(capsys, "rules", "--select", "XYZ", code=2).err


def test_markdown_has_every_rule_in_its_section(capsys):
    page = printed(capsys, "rules", "--format", "markdown").out
    assert page.startswith("# Rules\n\n## 4.1 Data parallelism: partitioning\n\n### DAT1")
    assert page.count("\n### ") == len(all_constraints())
    assert page.count("\nSource: ") == len(all_constraints())


def test_examples_are_set_off_as_code():
    page = rules_markdown(constraints_of("MOD101"))
    assert "\n    Fails: " in page
    assert "\nFails: " not in page


def test_explain_covers_demands(capsys):
    demand = next(d for d in all_demands() if len(constraints_of(d.code)) == 1)
    out = printed(capsys, "explain", demand.code.lower()).out
    assert out.startswith(f"{demand.code}: {demand.title}\n")
    assert f"Consequence: {demand.consequence}" in out
    assert f"holds for {demand.scope}" in out


def test_explain_prints_all_that_share_a_code(capsys):
    code = next(d.code for d in all_demands() if len(constraints_of(d.code)) > 1)
    out = printed(capsys, "explain", code).out
    assert out.count("\nSource: ") == len(constraints_of(code)) > 1
    record = json.loads(printed(capsys, "explain", code, "--json").out)
    assert len(record["others"]) == len(constraints_of(code)) - 1


def test_explain_knows_complaints_about_files(capsys):
    assert printed(capsys, "explain", "CFG101").out.startswith("CFG101: Unknown key\n")
    assert "unknown rule 'MOD999'" in printed(capsys, "explain", "MOD999", code=2).err


def test_show_frameworks(capsys):
    lines = printed(capsys, "show", "frameworks").out.splitlines()
    assert any(line.startswith("torchtitan ") for line in lines)
    (record,) = json.loads(printed(capsys, "show", "frameworks", "torchtitan", "--json").out)[
        "frameworks"
    ]
    assert record["fields"] > 50
    assert "toml" in record["syntaxes"]


@pytest.mark.parametrize("word", ["h100", "H100"])
def test_a_word_narrows_what_is_shown(word, capsys):
    lines = printed(capsys, "show", "gpus", word).out.splitlines()
    assert len(lines) > 2
    assert all("h100" in line.lower() for line in lines[1:])
    assert "no gpu holds 'zzz'" in printed(capsys, "show", "gpus", "zzz", code=2).err


def test_show_names(capsys, monkeypatch):
    entries = [
        SimpleNamespace(
            variable="micro_batch_size",
            meaning="sequences at once",
            spellings={"a": ("--mbs", "--micro"), "b": ("batch.per_gpu",)},
        ),
        SimpleNamespace(variable="tp", meaning="tensor parallel", spellings={"a": ("--tp",)}),
    ]
    names = SimpleNamespace(dictionary=lambda: entries)
    monkeypatch.setitem(sys.modules, "meshwright.frameworks.names", names)
    assert printed(capsys, "show", "names", "PER-GPU").out.splitlines() == [
        "name              framework  spelled         meaning",
        "micro_batch_size  a          --mbs, --micro  sequences at once",
        "                  b          batch.per_gpu",
    ]
    assert len(json.loads(printed(capsys, "show", "names", "--json").out)["names"]) == 2
