"""What is wrong with a configuration: general rules on its job, demands on its own knobs.

Where a configuration leaves out the model, the GPUs or the batch, a general rule is asked twice,
with ordinary and with accommodating values in their place (`frameworks.jobs.draft`). What it finds
both times is certain; what it finds once hangs on what is missing, and is only counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.finding import Finding, Severity
from meshwright.base.noun import dataclass
from meshwright.base.words import shown
from meshwright.frameworks.complaints import complaint
from meshwright.frameworks.counts import uncountable
from meshwright.frameworks.facts import facts
from meshwright.frameworks.jobs import Drafted, draft, lean
from meshwright.frameworks.knobs import Knobs
from meshwright.rules.costed import is_laid
from meshwright.rules.demand import demands_of, message, suggested, verdict
from meshwright.rules.pointing import pointed, pointed_demand
from meshwright.rules.rule import all_rules, as_numpy, check
from meshwright.rules.together import told_together
from meshwright.rules.tolerated import tolerated
from meshwright.rules.uncounted import FAILURES, ON_THE_DEVICE, SHORT, fits_from, found_on_any_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.frameworks.framework import Framework
    from meshwright.frameworks.reading import Reading
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.job import Job
    from meshwright.rules.demand import Demand
    from meshwright.rules.rule import Rule

_OPTION = {
    "model": "--model",
    "gpu": "--gpus",
    "num_gpus": "--gpus and --nodes",
    "seq_len": "--set seq_len=...",
    "micro_batch_size": "--set micro_batch_size=...",
    "global_batch_size": "--set global_batch_size=...",
    "precision": "the trainer's file or --set bf16=true",
    "recompute": "--set recompute=full or none",
    "zero_stage": "the DeepSpeed file or --set zero_stage=...",
}
_NOUN = {
    "model": "the model",
    "gpu": "the kind of GPU",
    "num_gpus": "the number of GPUs",
    "seq_len": "the sequence length",
    "micro_batch_size": "the micro-batch",
    "global_batch_size": "the global batch",
    "precision": "the precision (bf16 stands in)",
    "recompute": "what is recomputed",
    "zero_stage": "the ZeRO stage",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """The findings of one configuration and the job they speak of.

    `judged` is the drafted job as the rules saw it, NumPy values in its plan. `withheld` are the
    codes of general rules that hang on what is missing, `unjudged` the demands' codes by the
    variable that they lack.
    """

    findings: tuple[Finding, ...]
    drafted: Drafted
    judged: Job
    withheld: tuple[str, ...] = ()
    unjudged: Mapping[str, tuple[str, ...]]


def lint(
    reading: Reading,
    *,
    model: Model | None = None,
    cluster: Cluster | None = None,
    predict: bool = True,
    edits: bool = True,
) -> Linted:
    """Everything that the rules have against a configuration, errors first, then by place.

    `predict` False leaves out the rules that weigh a prediction of memory or time, `edits` False
    the edits of fixes, which take longer than all the rest.
    """
    drafted = draft(reading, model=model, cluster=cluster)
    judged = as_numpy(drafted.job)
    general, withheld = _general(drafted, judged, predict=predict)
    general += found_on_any_count(reading, drafted) if predict else []
    demanded, unjudged = _demanded(reading, drafted, edits=edits)
    impossible = list(_impossible(reading, drafted))
    findings = [
        *told_together(
            (
                *reading.config.findings,
                *(f for part in reading.config.parts for f in part.config.findings),
                *reading.findings,
            )
        ),
        *(
            pointed(rule, tolerated(rule, found, reading), reading, drafted, edits=edits)
            for rule, found in _not_refused(general, demanded)
        ),
        *demanded,
        *impossible,
        *_counted(reading, (*demanded, *impossible)),
        *_missing_note(drafted, withheld, fits_from(reading, drafted) if predict else None),
    ]
    return Linted(
        findings=tuple(sorted(_once(findings), key=_order)),
        drafted=drafted,
        judged=judged,
        withheld=tuple(withheld),
        unjudged=unjudged,
    )


def _not_refused(
    general: Sequence[tuple[Rule, Finding]], demanded: Sequence[Finding]
) -> list[tuple[Rule, Finding]]:
    """General findings without what another one says better, or the framework's own refusal."""
    refused = {f.code for f in demanded if f.severity is Severity.ERROR}
    told = {f.code for f in (*demanded, *(found for _, found in general))}
    return [
        (rule, found)
        for rule, found in general
        if told.isdisjoint(rule.said_by)
        and (found.severity is Severity.ERROR or found.code not in refused)
    ]


def _order(finding: Finding) -> tuple[Any, ...]:
    return (-int(finding.severity), finding.file, finding.line, finding.column, finding.code)


def _once(findings: Sequence[Finding]) -> list[Finding]:
    """One finding per code and place; the gravest of them."""
    best: dict[tuple[Any, ...], Finding] = {}
    for found in findings:
        key = (found.code, found.file, found.line, found.column, found.message)
        if key not in best or best[key].severity < found.severity:
            best[key] = found
    return list(best.values())


# General rules


def _general(
    drafted: Drafted, judged: Job, *, predict: bool
) -> tuple[list[tuple[Rule, Finding]], list[str]]:
    """The findings that hold whatever stands in, and the codes of those that do not."""
    lacking = set(drafted.missing)
    known = (r for r in all_rules() if not lacking & set(r.needs))
    rules = [r for r in known if predict or not r.predictive]
    by_code = {rule.code: rule for rule in rules}
    first = _found(judged, rules)
    if drafted.other is drafted.job:
        return _weighed([(by_code[c], f) for c, f in first.items()], drafted), []
    second = _found(drafted.other, rules)
    certain = [
        (by_code[c], f)
        for c, f in second.items()
        if c in first or not first.keys().isdisjoint(by_code[c].implied_by)
    ]
    hanging = set() if drafted.is_sized else {c for c, _ in second.items() if _is_roomy(by_code[c])}
    sure = [(r, f) for r, f in certain if r.code not in hanging]
    return _weighed(sure, drafted), sorted(set(first) - set(second) | hanging)


def _is_roomy(rule: Rule) -> bool:
    """Whether a prediction of a short step does not bound the rule: all but a lack of memory."""
    return rule.predictive and rule.severity is not Severity.ERROR and rule.code not in SHORT


def _found(job: Job, rules: Sequence[Rule]) -> dict[str, Finding]:
    """The findings by code; a lack of memory is told beside errors that a plan can have a cost in.

    Where a foremost rule finds an error, nothing can be predicted.
    """
    found = {f.code: f for f in check(job, rules)}
    errors = [r for r in rules if r.code in found and found[r.code].severity is Severity.ERROR]
    if not errors or any(r.foremost for r in errors) or not is_laid(job):
        return found
    try:
        more = check(job, [r for r in rules if r.code in ON_THE_DEVICE])
    except FAILURES:  # a plan that a rule refuses may have no cost
        return found
    return {**{f.code: f for f in more}, **found}


def _weighed(found: list[tuple[Rule, Finding]], drafted: Drafted) -> list[tuple[Rule, Finding]]:
    """Predicted errors that hang on a default of the framework, as warnings that say so."""
    predicted = [r for r, f in found if r.predictive and f.severity is Severity.ERROR]
    if not (drafted.by_default and predicted):
        return found
    sure = {f.code for f in check(lean(drafted), predicted)}
    names = " and ".join(drafted.by_default)
    note = f"hangs on {names}, which nothing states: the framework's default is taken"
    return [
        (r, f)
        if r not in predicted or r.code in sure
        else (r, f.replace(severity=Severity.WARNING, notes=(*f.notes, note)))
        for r, f in found
    ]


def _impossible(reading: Reading, drafted: Drafted) -> Iterator[Finding]:
    """CFG109: stated values that no plan can hold, so that defaults stand in for them."""
    for problem in drafted.problems:
        for setting in reading.settings_of(problem.key)[:1]:
            yield complaint(
                "CFG109",
                setting,
                f"{problem.key} = {shown(problem.value)} {problem.reason}: judged as if not stated",
                severity=Severity.ERROR if _is_number(problem.value) else Severity.WARNING,
                hint=problem.hint,
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _counted(reading: Reading, told: Sequence[Finding]) -> Iterator[Finding]:
    """CFG109 of numbers below one, where no other error says what is wrong with the number."""
    places = {(f.file, f.line, f.column) for f in told if f.severity is Severity.ERROR}
    return (f for f in uncountable(reading) if (f.file, f.line, f.column) not in places)


def _unpredicted(drafted: Drafted) -> str:
    """What cannot be said without what is missing; what a GPU needs hangs on no kind of GPU."""
    costs = {"model", "gpu", "num_gpus"} & {*drafted.missing}
    if costs == {"gpu"} and drafted.is_sized:
        return "whether the memory fits and how long a step takes are not predicted"
    return "memory and time are not predicted"


def _missing_note(
    drafted: Drafted, withheld: Sequence[str], enough_gpus: int | None
) -> list[Finding]:
    """CFG201: what to state so that the rest can be judged."""
    whole = drafted.is_whole and drafted.is_sized
    if not drafted.missing or (whole and not withheld and "precision" not in drafted.missing):
        return []
    nouns = [_NOUN[name] for name in drafted.missing if name in _NOUN]
    options = dict.fromkeys(_OPTION[name] for name in drafted.missing if name in _OPTION)
    lacking = "" if whole else _unpredicted(drafted)
    counted = f"{len(withheld)} rules hang on it" if withheld else ""
    fits = f"the memory of {enough_gpus} GPUs would do" if enough_gpus else ""
    effect = ", ".join(text for text in (lacking, counted, fits) if text)
    return [
        Finding(
            code="CFG201",
            severity=Severity.INFO,
            message="; ".join(text for text in (f"not stated: {', '.join(nouns)}", effect) if text),
            hint=f"give {', '.join(options)}",
            notes=tuple(f"withheld: {code}" for code in withheld),
        )
    ]


# Demands


def _demanded(
    reading: Reading, drafted: Drafted, *, edits: bool
) -> tuple[list[Finding], Mapping[str, tuple[str, ...]]]:
    """The findings of every framework's demands, and the variables that some of them lacked."""
    known = facts(drafted)
    findings: list[Finding] = []
    asides: list[Finding] = []  # what older releases mind, worth saying where newer do not
    lacking: dict[str, list[str]] = {}
    for framework in reading.frameworks:
        own = framework is reading.config.framework
        version = reading.config.version if own else ""
        for rule, older in demands_of(framework, version, reading.config.below if own else ()):
            knobs = Knobs(framework.name, version, reading.values, facts=known)
            fires = verdict(rule, knobs)
            if fires is None:
                for name in knobs.lacking:
                    lacking.setdefault(name, []).append(rule.code)
            elif fires:
                chosen = edits and not older
                found = _finding(rule, knobs, reading, framework, older=older, edits=chosen)
                (asides if older else findings).append(found)
    said = {f.code for f in findings}
    findings += (f for f in asides if f.code not in said)
    return findings, {name: tuple(codes) for name, codes in lacking.items()}


def _finding(
    rule: Demand,
    knobs: Knobs,
    reading: Reading,
    framework: Framework,
    *,
    older: bool,
    edits: bool,
) -> Finding:
    """The finding of a demand that fires; one that only older versions make is a note."""
    looked_at = dict(knobs.looked_at)
    says = message(rule, knobs)
    finding = Finding(
        code=rule.code,
        severity=Severity.INFO if older else rule.severity,
        message=f"{says} (only {rule.scope} minds)" if older else says,
        reason=rule.summary,
        consequence=_consequence(rule, framework),
        confidence=rule.confidence,
        source=rule.source,
        notes=(f"demanded by {rule.scope}",),
    )
    changes = suggested(rule, knobs)
    return pointed_demand(finding, reading, looked_at, changes, safe=rule.safe, edits=edits)


def _consequence(rule: Demand, framework: Framework) -> str:
    for name in (framework.name, *framework.scopes, *framework.below):
        if name in rule.consequences:
            return rule.consequences[name]
    return rule.consequence
