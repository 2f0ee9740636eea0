"""The catalogue says of every constraint whether it is checked, and says so truly."""

from __future__ import annotations

import pytest

from meshwright.rules.catalogue import Entry, catalogue
from meshwright.rules.demand import all_demands
from meshwright.rules.rule import all_rules

STATUSES = {"general", "framework", "needs", "own"}
FRAMEWORKS = {
    "accelerate",
    "colossalai",
    "deepspeed",
    "galvatron",
    "megatron",
    "megatron-bridge",
    "paddle",
    "torch",
    "torchtitan",
    "transformers",
}
ENTRIES = {e.code: e for e in catalogue()}
RULES = {r.code for r in all_rules()}
DEMANDS = {d.code for d in all_demands()}


def test_every_general_entry_has_its_rule() -> None:
    held = {e.code: e.rule for e in ENTRIES.values() if e.status == "general"}
    missing = {code: by for code, by in held.items() if by not in RULES}
    assert not missing


def test_every_entry_of_our_own_is_a_rule_or_a_demand() -> None:
    own = {e.code for e in ENTRIES.values() if e.status == "own"}
    assert own <= RULES | DEMANDS


def test_every_entry_of_a_framework_is_demanded() -> None:
    framework = {e.code for e in ENTRIES.values() if e.status == "framework"}
    assert framework <= DEMANDS


def test_every_demand_is_in_the_catalogue() -> None:
    assert set(ENTRIES) >= DEMANDS


def test_every_rule_is_in_the_catalogue() -> None:
    held = {e.rule for e in ENTRIES.values()} - {""}
    assert held >= RULES


def test_nothing_deferred_is_implemented() -> None:
    deferred = {e.code for e in ENTRIES.values() if e.status in ("framework", "needs")}
    assert not deferred & RULES


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda e: e.code)
def test_an_entry_gives_its_reason(entry: Entry) -> None:
    assert entry.status in STATUSES
    assert entry.title
    if entry.status != "general":
        assert entry.reason


def test_a_deferred_entry_names_its_framework() -> None:
    for entry in ENTRIES.values():
        if entry.status == "framework" and entry.code[:3] in ("DAT", "COM"):
            names = entry.reason.split(":")[0].split(", ")
            assert set(names) <= FRAMEWORKS, entry.code


def test_data_and_communication_are_all_accounted_for() -> None:
    counted = {"DAT": 137, "COM": 52}
    for prefix, number in counted.items():
        rows = [e for e in ENTRIES.values() if e.code.startswith(prefix) and e.status != "own"]
        assert len(rows) == number
        open_rows = [e for e in rows if e.status != "framework"]
        done = [e for e in open_rows if e.status == "general"]
        assert len(done) > 0.9 * len(open_rows)
