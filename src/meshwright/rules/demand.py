"""What only one framework demands: rules on its own knobs, with the versions that have them.

A demand is a function from `Knobs` to a truth value. It names variables, not flags, so that one
demand serves every framework that spells them (Megatron's arguments, Megatron-Bridge's YAML). Its
page shows configurations in a framework's own words, which are read and judged as tests:

    Fails: megatron-lm 0.19: --cpu-offloading --pipeline-model-parallel-size 2
    Passes: deepspeed 0.19: {"train_batch_size": 8}
    Fails: knobs(framework="torch 2.13", zero_stage=3, has_scalar_params=True)

The text of a configuration runs to the next blank line or example. Without `framework`, `knobs` is
judged under the first name of the scope.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.pattern import pattern
from meshwright.base.shipped import shipped
from meshwright.frameworks.field import release
from meshwright.frameworks.knobs import NotStated
from meshwright.rules.constraint import CODE, Constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from meshwright.base.finding import Severity
    from meshwright.frameworks.framework import Framework
    from meshwright.frameworks.knobs import Knobs
    from meshwright.frameworks.versions import Below

PACKAGE = "meshwright.rules.framework"
_UNJUDGED = (NotStated, TypeError, ValueError, AttributeError, ArithmeticError, LookupError)
"""What a rule raises on a configuration whose values are missing, of another type or zero."""

_BOUND = pattern(r"(>=|<=|==|@|<)\s*([\w.]+)")
_ITEM = pattern(r"([\w.-]+?)\s*((?:(?:>=|<=|==|@|<)\s*[\w.]+\s*,?\s*)*)")
_EXAMPLE = pattern(
    r"^(Fails|Passes): *(.*?)(?=^(?:Fails|Passes):|^\s*$|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(eq=False, slots=True, kw_only=True)
class Demand(Constraint):
    """A constraint of one or a few frameworks.

    `consequence` says what the framework does: its error in its own words, or what it silently does
    instead; `consequences` the same by scope name where frameworks differ. `says` is the message,
    with variables in braces ("cpu_offloading with pp {pp}"), where `describe` does not build it.
    `safe` marks a fix that leaves the meaning of the configuration as it is.
    """

    consequence: str
    says: str = ""
    consequences: Mapping[str, str] = field(default_factory=dict)
    safe: bool = False
    describe: Callable[[Knobs], str] | None = field(default=None)
    suggest: Callable[[Knobs], Mapping[str, Any]] | None = field(default=None)

    def message(self, function: Callable[[Knobs], str]) -> Callable[[Knobs], str]:
        """Decorator: `function` says which values broke the rule."""
        self.describe = function
        return function

    def fix(
        self, function: Callable[[Knobs], Mapping[str, Any]]
    ) -> Callable[[Knobs], Mapping[str, Any]]:
        """Decorator: `function` returns the values, by variable, that silence the rule.

        None as a value removes the setting.
        """
        self.suggest = function
        return function

    def examples(self, kind: str) -> tuple[str, ...]:
        """The examples of `kind` ("Fails" or "Passes") in the page, as written."""
        return tuple(text.rstrip() for name, text in _EXAMPLE.findall(self.doc) if name == kind)


def demand(
    code: str,
    title: str,
    *,
    severity: Severity,
    section: str,
    scope: str,
    source: str,
    consequence: str,
    confidence: str = "run",
    consequences: Mapping[str, str] | None = None,
    says: str = "",
    suggest: Mapping[str, Any] | None = None,
    safe: bool = False,
) -> Callable[[Callable[[Knobs], bool]], Demand]:
    """Decorator that makes a function from knobs to a truth value into a `Demand`.

    `suggest` are the values of a fix that is always the same.
    """
    if not CODE.fullmatch(code):
        raise MeshwrightError(f"{code!r} is not a rule code such as DAT101")

    def decorate(condition: Callable[[Knobs], bool]) -> Demand:
        return Demand(
            code=code,
            title=title,
            severity=severity,
            section=section,
            source=source,
            scope=scope,
            confidence=confidence,
            consequence=consequence,
            consequences=consequences or {},
            says=says,
            suggest=None if suggest is None else set_to(**suggest),
            safe=safe,
            condition=condition,
        )

    return decorate


def set_to(**values: Any) -> Callable[[Knobs], Mapping[str, Any]]:
    """A fix that is always the same: `some_demand.fix(set_to(sequence_parallel=True))`."""

    def fixed(_knobs: Knobs) -> Mapping[str, Any]:
        return values

    return fixed


# Application


def verdict(demand_: Demand, knobs: Knobs) -> bool | None:
    """Whether a demand is broken; None where it asks for a variable that nothing states."""
    try:
        return bool(demand_.condition(knobs))
    except _UNJUDGED:
        return None


def message(demand_: Demand, knobs: Knobs) -> str:
    """What a broken demand says: the values that broke it."""
    try:
        if demand_.describe is not None:
            return demand_.describe(knobs)
        return demand_.says.format_map(_Words(knobs)) if demand_.says else demand_.title
    except _UNJUDGED:
        return demand_.title


def suggested(demand_: Demand, knobs: Knobs) -> dict[str, Any]:
    """The values, by variable, that repair a broken demand; none where it knows no repair."""
    try:
        return dict(demand_.suggest(knobs)) if demand_.suggest is not None else {}
    except _UNJUDGED:
        return {}


class _Words(dict[str, str]):
    """Variables as words, for templates."""

    def __init__(self, knobs: Knobs) -> None:
        super().__init__()
        self.knobs = knobs

    def __missing__(self, name: str) -> str:
        return word(self.knobs.get(name))


def word(value: Any) -> str:
    """A value as messages print it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(word(item) for item in value) or "none"
    return str(value)


def applies(demand_: Demand, framework: Framework, version: str = "", below: Below = ()) -> bool:
    """Whether a demand's scope names the framework in this version, or what it runs on.

    Without a version the newest is meant. Of packages below a framework the version is known only
    where `below` has it: what others demanded only up to some release is not asked.
    """
    return scope_name(demand_.scope, versions_of(framework, version, below)) != ""


def versions_of(framework: Framework, version: str = "", below: Below = ()) -> dict[str, str]:
    """Below by scope name, of the framework and of what it runs on; "" where not known."""
    own = dict.fromkeys(framework.scopes, version or framework.newest)
    return {**dict.fromkeys(framework.below, ""), **own, **dict(below)}


def made_by_older(demand_: Demand, framework: Framework, below: Below = ()) -> bool:
    """Whether only releases before the newest of a framework, or of what it runs on, demand it."""
    names = {*framework.scopes, *framework.below} - dict(below).keys()
    items = (_ITEM.fullmatch(item.strip()) for item in demand_.scope.split(";"))
    return not applies(demand_, framework) and any(
        found is not None and found[1] in names and "<" in found[2] for found in items
    )


@lru_cache(maxsize=64)
def demands_of(
    framework: Framework, version: str = "", below: Below = ()
) -> tuple[tuple[Demand, bool], ...]:
    """The demands that a framework makes, each with whether only older releases make it.

    Those of older releases count where no version is stated. `below` has versions of packages that
    the framework runs on, by name.
    """
    names = {*framework.scopes, *framework.below, *dict(below)}
    every = demands_naming(frozenset(names))
    made = {d for d in every if applies(d, framework, version, below)}
    older = {d for d in every if not version and made_by_older(d, framework, below)} - made
    return tuple((d, d in older) for d in every if d in older or d in made)


def scope_name(scope: str, versions: Mapping[str, str]) -> str:
    """The first name of a scope that holds under versions by name ("" = unknown), "" if none."""
    for item in scope.split(";"):
        found = _ITEM.fullmatch(item.strip())
        if found and found[1] in versions and _in_range(found[2], versions[found[1]]):
            return found[1]
    return ""


def _in_range(bounds: str, version: str) -> bool:
    """Whether a version lies within bounds such as ">=0.9,<=0.12".

    "@0.19" means seen in that release: newer ones are taken to keep it, older are not judged.
    """
    return all(_within(bound, version) for bound in bounds.split(",") if bound)


def _within(bound: str, version: str) -> bool:
    operator, limit = _BOUND.fullmatch(bound.strip()).groups()  # type: ignore[union-attr]
    stated = release(version)
    if not stated:  # none, or a branch such as "main", which is the newest
        return operator in (">=", "@")
    wanted = release(limit)
    given = (*stated, *(0,) * len(wanted))[: len(wanted)]
    outcomes = {">=": given >= wanted, "<=": given <= wanted, "<": given < wanted}
    return outcomes.get(operator, given >= wanted if operator == "@" else given == wanted)


# Discovery


SCOPES = "scopes.csv"  # the names in the scopes of each module's demands; a test holds them equal


@cache
def all_demands() -> tuple[Demand, ...]:
    """Every demand under `meshwright.rules.framework`, by code."""
    return _ordered(d for name in _modules() for d in _demands_in(name))


@lru_cache(maxsize=64)
def demands_naming(names: frozenset[str]) -> tuple[Demand, ...]:
    """The demands of the modules that have one with some of the names in its scope, by code.

    The other modules are not imported.
    """
    known = _scopes()
    near = (name for name in _modules() if name not in known or known[name] & names)
    return _ordered(d for name in near for d in _demands_in(name))


def scope_names(scope: str) -> frozenset[str]:
    """The names of frameworks and packages in a scope."""
    items = (_ITEM.fullmatch(item.strip()) for item in scope.split(";"))
    return frozenset(found[1] for found in items if found)


@cache
def _modules() -> tuple[str, ...]:
    package = importlib.import_module(PACKAGE)
    return tuple(m.name for m in pkgutil.walk_packages(package.__path__, PACKAGE + "."))


@cache
def _scopes() -> Mapping[str, frozenset[str]]:
    """The names in the scopes of each module, as `SCOPES` lists them."""
    text = (shipped(PACKAGE) / SCOPES).read_text(encoding="utf-8")
    rows = (line.split(",") for line in text.splitlines()[1:])
    return {f"{PACKAGE}.{module}": frozenset(names.split()) for module, names in rows}


def _demands_in(module: str) -> Iterator[Demand]:
    values = vars(importlib.import_module(module)).values()
    return (value for value in values if isinstance(value, Demand))


def _ordered(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """Each demand once, by code and scope."""
    found = {id(d): d for d in demands}
    return tuple(sorted(found.values(), key=lambda d: (d.code, d.scope)))
