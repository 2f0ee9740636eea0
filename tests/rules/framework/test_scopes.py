"""The list of scopes by module, by which only the modules that may speak are imported."""

from __future__ import annotations

import importlib

import pytest

from meshwright.base.shipped import shipped
from meshwright.frameworks.framework import Framework, all_frameworks
from meshwright.rules.demand import (
    PACKAGE,
    SCOPES,
    Demand,
    all_demands,
    applies,
    demands_naming,
    demands_of,
    made_by_older,
    scope_names,
)


def _listing() -> str:
    """The list as the modules themselves would have it."""
    modules = sorted({d.condition.__module__ for d in all_demands()})
    names: dict[str, set[str]] = {module: set() for module in modules}
    for module in modules:
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, Demand):
                names[module] |= scope_names(value.scope)
    rows = [f"{m.removeprefix(PACKAGE + '.')},{' '.join(sorted(names[m]))}" for m in modules]
    return "\n".join(["module,scopes", *rows, ""])


def test_the_list_is_what_the_modules_say() -> None:
    assert (shipped(PACKAGE) / SCOPES).read_text(encoding="utf-8") == _listing()


@pytest.mark.parametrize("framework", all_frameworks(), ids=lambda f: f.name)
def test_no_demand_is_missed(framework: Framework) -> None:
    wanted = [d for d in all_demands() if applies(d, framework) or made_by_older(d, framework)]
    assert [d for d, _ in demands_of(framework)] == wanted


def test_demands_of_other_names_are_left_out() -> None:
    found = {d.code for d in demands_naming(frozenset({"nanotron"}))}
    assert found
    assert len(found) < len(all_demands()) / 10
