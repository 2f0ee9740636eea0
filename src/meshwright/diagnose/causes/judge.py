"""Which causes are told: every rule is asked, time that several claim goes to the most specific."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.diagnose.causes.case import case_of
from meshwright.diagnose.causes.exposed import portions
from meshwright.diagnose.causes.rule import all_causes, has_evidence
from meshwright.diagnose.causes.stragglers import wait_us
from meshwright.diagnose.diagnosis import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.causes.rule import CauseRule, Found
    from meshwright.diagnose.diagnosis import Evidence, Lever

LEAST_SHARE = 0.01  # of the step: less is not worth a sentence
LEAST_LEFT = 0.5  # of what a rule claimed: with less left, others have said it
ENOUGH = 0.1  # of the step: a fault as large as that is told before costs by design
WHY = 0.05  # of the step: a cause as large as that is told before a deviation from the plan
RULES_THE_REST = 0.5  # of the largest loss: waits of that size decide what the others look like
_LOWER = {"high": "medium", "medium": "low", "low": "low"}


def causes(evidence: Evidence) -> tuple[Cause, ...]:
    """What costs the run time, by the time that could be had back, most first.

    Ranks that the others wait for come before all else where that is a large part of the loss:
    what the others lose follows from it. Costs that the plan has by design come after faults that
    take a tenth of the step. `lost_us` adds up to no more than what a step loses. Causes that cost
    no time now (a warning, a trace that is unfit) come last.
    """
    case = case_of(evidence)
    found = asked(case, all_causes())
    told = [(rule, _cause(case, rule, what)) for rule, what in _shared_out(case, found)]
    causes_proper = [cause.share for rule, cause in told if not rule.deviation]
    most = max(causes_proper, default=0.0)
    first = case.of_step(wait_us(case)) >= RULES_THE_REST * most
    told.sort(
        key=lambda pair: (
            _turn(*pair, waits_rule=first, is_explained=most >= WHY),
            -recoverable_us(pair[1]),
            pair[1].code,
        )
    )
    return tuple(cause for _, cause in told)


def _turn(rule: CauseRule, cause: Cause, *, waits_rule: bool, is_explained: bool) -> int:
    """When a cause is told; `waits_rule` where waits for ranks are a large part of the loss.

    `is_explained` where some cause says why the run is slow, not only that the plan is missed.
    """
    if not cause.lost_us:
        return 4
    if rule.deviation and is_explained:
        return 3
    if cause.share < ENOUGH or rule.planned:
        return 2
    return 0 if rule.foremost and waits_rule else 1


def asked(case: Case, rules: Iterable[CauseRule]) -> list[tuple[CauseRule, Found]]:
    """What each rule that has its evidence found, but for what others name better."""
    answers = ((rule, rule.condition(case)) for rule in rules if has_evidence(rule, case))
    fired = [(rule, found) for rule, found in answers if found is not None]
    codes = {rule.code for rule, _ in fired}
    return [(rule, found) for rule, found in fired if not codes.intersection(rule.same_as)]


def recoverable_us(cause: Cause) -> float:
    """What a step would gain: as far as that is known, else all that is lost."""
    gain_s = cause.lever.gain_s
    return cause.lost_us if gain_s is None else min(cause.lost_us, 1e6 * gain_s)


def _shared_out(
    case: Case, found: Sequence[tuple[CauseRule, Found]]
) -> Iterator[tuple[CauseRule, Found]]:
    """Each finding with what the more specific ones left it, but for those left with little."""
    left = {**case.parts_us, **portions(case)}
    for rule, what in _most_specific_first(found):
        if not what.takes_us:
            yield rule, what
            continue
        wanted = sum(what.takes_us.values())
        taken, rest = _taken(left, what.takes_us)
        total = sum(taken.values())
        if total < LEAST_SHARE * case.step_us or total < LEAST_LEFT * wanted:
            continue
        left = rest
        yield rule, replace(what, takes_us=taken)


def _taken(
    left: Mapping[str, float], wanted: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """What a claim gets of what is left, and what then is: of a portion no more than its part."""
    rest, taken = dict(left), {}
    for name, us in wanted.items():
        parts = {name, _whole(name)}
        taken[name] = max(0.0, min(us, *(rest.get(part, 0.0) for part in parts)))
        for part in parts:
            rest[part] = rest.get(part, 0.0) - taken[name]
    return taken, rest


def _whole(name: str) -> str:
    return name.partition(":")[0]


def _most_specific_first(
    found: Sequence[tuple[CauseRule, Found]],
) -> list[tuple[CauseRule, Found]]:
    """Findings after all those that say the same better; else by what they claim, most first."""
    waiting = sorted(found, key=lambda pair: (-sum(pair[1].takes_us.values()), pair[0].code))
    ordered: list[tuple[CauseRule, Found]] = []
    while waiting:
        codes = {rule.code for rule, _ in waiting}
        free = next((p for p in waiting if not codes.intersection(p[0].said_by)), waiting[0])
        waiting.remove(free)
        ordered.append(free)
    return ordered


def _cause(case: Case, rule: CauseRule, found: Found) -> Cause:
    lost_us = sum(found.takes_us.values())
    guards = (*case.guards, *found.guards)
    return Cause(
        code=rule.code,
        title=rule.title,
        kind=rule.kind,
        lost_us=lost_us,
        share=case.of_step(lost_us),
        message=found.message,
        evidence=found.proofs,
        lever=_at_most(found.lever, lost_us),
        ranks=found.ranks,
        confidence=_LOWER[found.confidence] if guards else found.confidence,
        source=found.cite or rule.source,
        guards=guards,
    )


def _at_most(lever: Lever, lost_us: float) -> Lever:
    """A lever whose gain is only what is lost, where nothing better is known."""
    if lever.gain_s is None and lost_us:
        return replace(lever, gain_s=lost_us / 1e6, basis="the share that is lost")
    return lever
