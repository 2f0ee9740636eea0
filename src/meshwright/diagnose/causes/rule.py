"""What a rule of causes is, and where they are found.

A rule is one function from a `Case` (the evidence, prepared) to what it found, or None. It says
nothing without the evidence it needs. Its docstring is its page: what shows it, what it costs, what
to do. What it found claims time of one step by part; where rules claim the same microseconds, those
named in `said_by` go first, and the rest only has what they leave.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.diagnose.diagnosis import CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Lever, Proof

PACKAGE = "meshwright.diagnose.causes"
CODE = pattern(r"(DAT|MOD|CMP|COM|HST)9\d\d")
NEEDS = (  # parts of the evidence
    "ranks",
    "device",
    "steps",
    "across",
    "pipeline",
    "metrics",
    "memory",
    "nccl",
    "job",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a rule found in a case.

    `takes_us` claims microseconds of a step by part ("compute" for work that need not be);
    empty for what costs nothing now, as a warning of a log.
    """

    message: str
    proofs: tuple[Proof, ...]
    lever: Lever
    takes_us: Mapping[str, float]
    ranks: tuple[int, ...] = ()
    confidence: str = "high"
    guards: tuple[str, ...] = ()
    cite: str = ""  # where this finding rests on more than the rule's own source


@dataclass(eq=False, slots=True, kw_only=True)
class CauseRule:
    """One cause: its code, class, source, the evidence without which it says nothing.

    `said_by` are the rules that explain the same time better and go first, `same_as` those that
    name the same thing better: where one of them fires this one is silent. `foremost` marks
    those from which losses of other ranks follow, `planned` a cost that the plan has by design:
    faults come first. `deviation` says that a plan is missed, not why: causes come before it.
    """

    code: str
    title: str
    kind: str
    source: str
    needs: tuple[str, ...]
    said_by: tuple[str, ...]
    same_as: tuple[str, ...]
    foremost: bool
    planned: bool
    deviation: bool
    condition: Callable[[Case], Found | None]

    @property
    def doc(self) -> str:
        """The page: what shows it, what it costs, what to do."""
        return cleandoc(self.condition.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the page, in one line."""
        return " ".join(self.doc.split("\n\n")[0].split())


def cause(
    code: str,
    title: str,
    *,
    kind: str,
    source: str,
    needs: tuple[str, ...] = ("ranks",),
    said_by: tuple[str, ...] = (),
    same_as: tuple[str, ...] = (),
    foremost: bool = False,
    planned: bool = False,
    deviation: bool = False,
) -> Callable[[Callable[[Case], Found | None]], CauseRule]:
    """Decorator that makes a function from a case to what it found into a `CauseRule`."""
    if not CODE.fullmatch(code):
        raise MeshwrightError(f"{code!r} is not a code of a cause such as DAT901")
    if kind not in CLASSES:
        raise MeshwrightError(f"cause {code}: {kind!r} is none of {', '.join(CLASSES)}")
    if unknown := set(needs) - set(NEEDS):
        raise MeshwrightError(f"cause {code} needs unknown evidence: {sorted(unknown)}")

    def decorate(condition: Callable[[Case], Found | None]) -> CauseRule:
        return CauseRule(
            code=code,
            title=title,
            kind=kind,
            source=source,
            needs=needs,
            said_by=said_by,
            same_as=same_as,
            foremost=foremost,
            planned=planned,
            deviation=deviation,
            condition=condition,
        )

    return decorate


@cache
def all_causes() -> tuple[CauseRule, ...]:
    """Every rule of causes, by code; a rule exists by being defined in a module of the package."""
    package = importlib.import_module(PACKAGE)
    found: dict[str, CauseRule] = {}
    for module in pkgutil.iter_modules(package.__path__, PACKAGE + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if not isinstance(value, CauseRule):
                continue
            if found.setdefault(value.code, value) is not value:
                raise MeshwrightError(f"two causes are called {value.code}")
    return tuple(found[code] for code in sorted(found))


def find_cause(code: str) -> CauseRule | None:
    """The cause called `code` (any case), or None."""
    wanted = code.upper()
    return next((c for c in all_causes() if c.code == wanted), None)


def has_evidence(rule: CauseRule, case: Case) -> bool:
    """Whether all that the rule needs is there."""
    return all(_HAS[name](case) for name in rule.needs)


_HAS: Mapping[str, Callable[[Case], Any]] = {
    "ranks": lambda case: case.ranks,
    "device": lambda case: any(r.computes_on == "device" for r in case.ranks),
    "steps": lambda case: case.ranks and case.steps > 1,
    "across": lambda case: case.ranks and case.across is not None,
    "pipeline": lambda case: case.pipeline is not None,
    "metrics": lambda case: case.evidence.metrics,
    "memory": lambda case: case.evidence.memory,
    "nccl": lambda case: case.evidence.nccl,
    "job": lambda case: case.job is not None,
}
