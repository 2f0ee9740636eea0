"""The examples on demands' pages, read: `knobs(...)`, or a configuration in a framework's words."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from meshwright.base.errors import UnknownName
from meshwright.frameworks.facts import facts
from meshwright.frameworks.framework import framework
from meshwright.frameworks.jobs import draft
from meshwright.frameworks.knobs import Knobs
from meshwright.frameworks.read import read_text
from meshwright.frameworks.setting import Setting, Source, Span, Value
from meshwright.rules.demand import Demand, applies, scope_name, verdict

_CONFIGURATION = re.compile(r"([\w-]+)(?: ([\w.]+))?: *(.*)", re.DOTALL)
_SOURCE = Source(file="example", text="", syntax="overrides")


@dataclass(frozen=True)
class Judged:
    """Whether an example lies in the demand's scope, and what the demand then says of it."""

    in_scope: bool
    fires: bool | None
    knobs: Knobs


def judged(demand: Demand, text: str) -> Judged:
    """The verdict on an example."""
    if text.startswith("knobs("):
        return judged_knobs(demand, arguments(text))
    found = _CONFIGURATION.fullmatch(text)
    assert found is not None, text
    name, version, words = found.groups()
    return _judged_configuration(demand, words, name, version or "")


def _judged_configuration(demand: Demand, text: str, name: str, version: str) -> Judged:
    reading = read_text(text, framework=name, version=version)
    known = facts(draft(reading))
    answers = []
    for item in reading.frameworks:
        own = reading.config.version if item is reading.config.framework else ""
        knobs = Knobs(item.name, own, reading.values, facts=known)
        answers.append(Judged(applies(demand, item, own), verdict(demand, knobs), knobs))
    return next((a for a in answers if a.in_scope), answers[0])


def arguments(text: str) -> dict[str, Any]:
    """The keyword arguments of `knobs(...)`, which are literals."""
    call = ast.parse(" ".join(text.split()), mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    assert call.func.id == "knobs"
    assert not call.args
    return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}


def judged_knobs(demand: Demand, values: dict[str, Any]) -> Judged:
    """The verdict on variables; `framework` is by default the first name of the scope."""
    name, version, *_ = [*str(values.get("framework") or first_name(demand)).split(), ""]
    stated = {n: stated_value(n, v) for n, v in values.items() if n != "framework"}
    knobs = Knobs(name, version, stated, facts={})
    in_scope = "framework" not in values or names(demand, name, version)
    return Judged(in_scope, verdict(demand, knobs), knobs)


def first_name(demand: Demand) -> str:
    """The first framework of a scope."""
    return re.split(r"[<>=@;, ]", demand.scope)[0]


def names(demand: Demand, name: str, version: str) -> bool:
    """Whether a demand's scope names a framework in a version."""
    try:
        known = framework(name)
    except UnknownName:  # a framework of rules alone, which no reader knows
        return bool(scope_name(demand.scope, {name: version}))
    return applies(demand, known, version)


def stated_value(name: str, value: Any) -> Value:
    """A value that a setting states."""
    nowhere = Span(0, 0)
    setting = Setting(
        name=name,
        spelled=name,
        value=value,
        source=_SOURCE,
        key=nowhere,
        where=nowhere,
        whole=nowhere,
    )
    return Value(value=value, settings=() if value is None else (setting,))
