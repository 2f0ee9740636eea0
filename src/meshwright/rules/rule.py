"""The rule engine: what a rule is, where rules are found, and how they are applied.

A rule is one function from a `Job` to a mask, True where the job is bad. The plan inside the job
may be one plan or a column of plans, so the same function lints a config (`check`) and prunes a
search space (`prune`). Beside the function stand a message that prints the values that broke it
and, where one exists, a fix: the nearest legal values.

Within a rule every field of the plan is a NumPy value, also for one plan, so that `&`, `|`, `~` and
`%` (zero included) mean the same in both cases. Workload, cluster and model are plain Python.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.plan.plan import Plan
from meshwright.plan.words import word
from meshwright.rules.constraint import CODE, Constraint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from meshwright.plan.job import Job

Mask = Any  # one bool or a column of them, as BoolColumn; NumPy's operators are typed loosely

PACKAGE = "meshwright.rules"
SECTIONS = ("data", "model", "compute", "communication")  # packages of rules
_EXAMPLE = pattern(r"^(Fails|Passes):\s*(plan\(.*?\))$", re.MULTILINE | re.DOTALL)
_PREDICTION = ("model", "gpu", "num_gpus")
_PLAN_FIELDS = tuple(f.name for f in fields(Plan))


@dataclass(eq=False, slots=True, kw_only=True)
class Rule(Constraint):
    """A constraint on the plan: a function from a job, or a column of jobs, to a mask.

    `reads` names the plan fields that the condition depends on: plans equal in these fields have
    the same answer. `foremost` marks a rule whose failure leaves nothing for the others to judge.
    `predictive` marks a rule that weighs a full prediction of memory or time: a search, which
    predicts anyway, does not apply it. `needs` are the parts of a job ("model", "gpu", "num_gpus",
    "seq_len", "global_batch_size") without which the rule says nothing, even where values that
    stand in for them would make it fire. `implied_by` are the codes of rules that claim more: where
    one of them fires instead, this one's claim holds too. `said_by` are the codes of rules that
    name the same fault better: where one of them fires too, this one is not told. `points` are the
    variables whose settings a finding points at, where not at all that the rule looks at.
    `tolerated_by` is a scope of frameworks
    that run what the rule refuses: an error is a warning there.
    """

    reads: tuple[str, ...]
    predictive: bool = False
    foremost: bool = False
    needs: tuple[str, ...] = ()
    implied_by: tuple[str, ...] = ()
    said_by: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    tolerated_by: str = ""
    describe: Callable[[Job], str] | None = field(default=None)
    suggest: Callable[[Job], dict[str, tuple[Any, ...]]] | None = field(default=None)

    def message(self, function: Callable[[Job], str]) -> Callable[[Job], str]:
        """Decorator: `function` says, for one plan, which values broke the rule."""
        self.describe = function
        return function

    def fix(
        self, function: Callable[[Job], dict[str, tuple[Any, ...]]]
    ) -> Callable[[Job], dict[str, tuple[Any, ...]]]:
        """Decorator: `function` returns, for one plan, the nearest legal values by field.

        A value, put in place alone or with the first one of each other field, silences the rule.
        Choices are given as members of their enumeration (`Recompute.FULL`).
        """
        self.suggest = function
        return function

    def examples(self, kind: str) -> tuple[str, ...]:
        """The examples of `kind` ("Fails" or "Passes") in the page, each in one line."""
        found = _EXAMPLE.findall(self.doc)
        return tuple(" ".join(text.split()) for name, text in found if name == kind)


def rule(
    code: str,
    title: str,
    *,
    severity: Severity,
    section: str,
    source: str,
    reads: tuple[str, ...] = (),
    confidence: str = "arithmetic",
    predictive: bool = False,
    foremost: bool = False,
    needs: tuple[str, ...] = (),
    implied_by: tuple[str, ...] = (),
    said_by: tuple[str, ...] = (),
    points: tuple[str, ...] = (),
    tolerated_by: str = "",
) -> Callable[[Callable[[Job], Mask]], Rule]:
    """Decorator that makes a function from a job to a mask into a `Rule`."""
    if not CODE.fullmatch(code):
        raise MeshwrightError(f"{code!r} is not a rule code such as DAT101")
    if unknown := set(reads) - set(_PLAN_FIELDS):
        raise MeshwrightError(f"rule {code} reads unknown plan fields: {sorted(unknown)}")

    def decorate(condition: Callable[[Job], Mask]) -> Rule:
        return Rule(
            code=code,
            title=title,
            severity=severity,
            section=section,
            source=source,
            reads=reads,
            scope="all",
            confidence=confidence,
            predictive=predictive,
            foremost=foremost,
            needs=needs or (_PREDICTION if predictive else ()),
            implied_by=implied_by,
            said_by=said_by,
            points=points,
            tolerated_by=tolerated_by,
            condition=condition,
        )

    return decorate


def always(**values: tuple[Any, ...]) -> Callable[[Job], dict[str, tuple[Any, ...]]]:
    """A fix that is the same for every job: `some_rule.fix(always(sequence_parallel=(True,)))`."""

    def fixed(_job: Job) -> dict[str, tuple[Any, ...]]:
        return values

    return fixed


# Discovery


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the sections, by code; a rule exists by being defined in a module."""
    sections = (importlib.import_module(f"{PACKAGE}.{name}") for name in SECTIONS)
    modules = (m for s in sections for m in pkgutil.walk_packages(s.__path__, s.__name__ + "."))
    found: dict[str, Rule] = {}
    for module in modules:
        for value in vars(importlib.import_module(module.name)).values():
            if not isinstance(value, Rule):
                continue
            if found.setdefault(value.code, value) is not value:
                raise MeshwrightError(f"two rules are called {value.code}")
    return tuple(found[code] for code in sorted(found))


def find_rule(code: str) -> Rule | None:
    """The rule called `code` (any case), or None."""
    wanted = code.upper()
    return next((r for r in all_rules() if r.code == wanted), None)


@cache
def pruning_rules() -> tuple[Rule, ...]:
    """Error rules, cheapest first: what a search applies to plans of its own making.

    Foremost rules are left out, since its axes hold no such values, and so are predictive ones.
    """
    errors = (r for r in all_rules() if r.severity is Severity.ERROR and not _turn(r))
    return tuple(sorted(errors, key=lambda r: (len(r.reads), r.code)))


# Application


def check(job: Job, rules: Iterable[Rule] | None = None) -> list[Finding]:
    """What is wrong with one plan: a finding per rule that fires, errors first, then by code.

    Where a foremost rule finds an error, the others are not asked; where any other does, there is
    nothing to predict, and predictive rules are not.
    """
    if len(job.plan) != 1:
        raise MeshwrightError("check reads one plan; use prune for a column of plans")
    job = as_numpy(job)
    chosen = tuple(all_rules() if rules is None else rules)
    findings: list[Finding] = []
    for turn in ("foremost", "", "predictive"):
        if not any(f.severity is Severity.ERROR for f in findings):
            findings += _findings(job, [r for r in chosen if _turn(r) == turn])
    return sorted(findings, key=lambda f: (-int(f.severity), f.code))


def _turn(rule_: Rule) -> str:
    """When `check` asks a rule: "foremost", "" or "predictive"."""
    if rule_.foremost:
        return "foremost"
    return "predictive" if rule_.predictive else ""


def _findings(job: Job, rules: Iterable[Rule]) -> list[Finding]:
    """The findings of the rules that fire."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return [finding(r, job) for r in rules if np.all(r.condition(job))]


def finding(rule_: Rule, job: Job) -> Finding:
    """The finding of a rule that fires on one plan."""
    fixes = rule_.suggest(job) if rule_.suggest else {}
    return Finding(
        code=rule_.code,
        severity=rule_.severity,
        message=rule_.describe(job) if rule_.describe else rule_.title,
        key=next(iter(fixes), ""),
        reason=rule_.summary,
        hint="; ".join(_wording(name, values) for name, values in fixes.items() if values),
    )


def _wording(name: str, values: tuple[Any, ...]) -> str:
    """One fix in words: "tp = 2", "tp = 1, 2 or 4"; "unset nccl_algo" where the value is None."""
    if values == (None,):
        return f"unset {name}"
    words = [_spelled(name, v) for v in values]
    return f"{name} = " + " or ".join([", ".join(words[:-1])][: len(words) - 1] + words[-1:])


def _spelled(name: str, value: Any) -> str:
    """A value as files spell it: `full` for `Recompute.FULL`, modules by name."""
    spelled = word(name, value)
    is_set = isinstance(spelled, list) and name != "layout"
    return "+".join(spelled) if is_set else str(spelled)


def mask(job: Job, rules: Iterable[Rule]) -> dict[str, Mask]:
    """For each rule's code, where it fires: one value if it depends on nothing that varies.

    Returns a NumPy bool, or a column as long as the plan.
    """
    job = as_numpy(job)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return {r.code: r.condition(job) for r in rules}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What survives the rules and what each of them removed.

    `alive` has one value a plan. `first` counts the plans by the first rule that removed them (in
    the order given), so its sum is the number removed. `fired` counts every plan on which a rule
    fires, whatever the other rules say; empty unless asked for.
    """

    alive: NDArray[np.bool_]
    first: dict[str, int]
    fired: dict[str, int]


def prune(job: Job, rules: Sequence[Rule] | None = None, *, independent: bool = False) -> Pruned:
    """Apply rules to a column of plans, by default all general error rules, cheapest first.

    Unless `independent` counts are wanted, a rule sees only the plans that earlier ones left.
    """
    job = as_numpy(job)
    chosen = pruning_rules() if rules is None else rules
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _prune_all(job, chosen) if independent else _prune_survivors(job, chosen)


def _prune_all(job: Job, rules: Sequence[Rule]) -> Pruned:
    """Every rule on every plan."""
    count = len(job.plan)
    alive = np.ones(count, dtype=bool)
    first: dict[str, int] = {}
    fired: dict[str, int] = {}
    for r in rules:
        bad = np.broadcast_to(np.asarray(r.condition(job), dtype=bool), count)
        fired[r.code] = int(np.count_nonzero(bad))
        first[r.code] = int(np.count_nonzero(bad & alive)) if fired[r.code] else 0
        if fired[r.code]:
            alive &= ~bad
    return Pruned(alive=alive, first=first, fired=fired)


def _prune_survivors(job: Job, rules: Sequence[Rule]) -> Pruned:
    """Each rule on the plans that are left; the column is compacted when half of it is dead."""
    rows = np.arange(len(job.plan))
    survivors = np.zeros(len(rows), dtype=bool)
    alive = np.ones(len(rows), dtype=bool)  # over `rows`
    first: dict[str, int] = {}
    for r in rules:
        condition = r.condition(job)
        if np.ndim(condition) == 0 and not condition:
            first[r.code] = 0
            continue
        bad = condition & alive
        first[r.code] = int(np.count_nonzero(bad))
        if not first[r.code]:
            continue
        alive &= ~bad
        if 2 * np.count_nonzero(alive) < len(rows):
            kept = np.flatnonzero(alive)
            job, rows, alive = job.with_plan(job.plan.take(kept)), rows[kept], alive[kept]
    survivors[rows[alive]] = True
    return Pruned(alive=survivors, first=first, fired={})


def as_numpy(job: Job) -> Job:
    """The job with a NumPy value in every field of its plan but `layout`; itself if it is so."""
    changes = {
        name: np.asarray(value)[()]
        for name in _PLAN_FIELDS
        if name != "layout" and not isinstance(value := getattr(job.plan, name), np.generic)
    }
    return job.with_plan(job.plan.replace(**changes)) if changes else job
