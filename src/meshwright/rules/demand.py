"""What only one framework demands: rules on its own knobs, with the versions that have them.

A demand is a function from `Knobs` to a truth value. It names variables, not flags, so that one
demand serves every framework that spells them (Megatron's arguments, Megatron-Bridge's YAML). Its
page shows configurations in a framework's own words, which are read and judged as tests:

    Fails: megatron-lm 0.19: --cpu-offloading --pipeline-model-parallel-size 2
    Passes: deepspeed 0.19: {"train_batch_size": 8}
    Fails: knobs(framework="torch 2.13", zero_stage=3, has_scalar_params=True)

The text of a configuration runs to the next blank line or example.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.rules.constraint import CODE, Constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.base.finding import Severity
    from meshwright.frameworks.knobs import Knobs

PACKAGE = "meshwright.rules.framework"
_EXAMPLE = re.compile(
    r"^(Fails|Passes): *(.*?)(?=^(?:Fails|Passes):|^\s*$|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(eq=False, slots=True, kw_only=True)
class Demand(Constraint):
    """A constraint of one or a few frameworks.

    `consequence` says what the framework does: its error in its own words, or what it silently does
    instead; `consequences` the same by scope name where frameworks differ. `safe` marks a fix that
    leaves the meaning of the configuration as it is.
    """

    consequence: str
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
    safe: bool = False,
) -> Callable[[Callable[[Knobs], bool]], Demand]:
    """Decorator that makes a function from knobs to a truth value into a `Demand`."""
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
            safe=safe,
            condition=condition,
        )

    return decorate


def set_to(**values: Any) -> Callable[[Knobs], Mapping[str, Any]]:
    """A fix that is always the same: `some_demand.fix(set_to(sequence_parallel=True))`."""

    def fixed(_knobs: Knobs) -> Mapping[str, Any]:
        return values

    return fixed


@cache
def all_demands() -> tuple[Demand, ...]:
    """Every demand under `meshwright.rules.framework`, by code."""
    package = importlib.import_module(PACKAGE)
    found: dict[int, Demand] = {}
    for module in pkgutil.walk_packages(package.__path__, PACKAGE + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Demand):
                found[id(value)] = value
    return tuple(sorted(found.values(), key=lambda d: (d.code, d.scope)))
