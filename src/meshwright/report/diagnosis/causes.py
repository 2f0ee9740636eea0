"""Causes as a person reads them: what, how much of a step, how that is known, what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.table import Column, Table, table_of
from meshwright.base.words import ranks_in_words
from meshwright.report.diagnosis import figures

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from meshwright.diagnose.diagnosis import Cause, Lever, Promise, Proof

MISSING = "ranks were traced"  # ends a guard that the answer words with the way to mend it
_MOST_EVENTS = 3


def cause_lines(causes: Sequence[Cause], *, said: Collection[str] = ()) -> Iterator[str]:
    """All causes, numbered, a blank line between them; guards that are `said` are not repeated."""
    for number, cause in enumerate(causes, start=1):
        if number > 1:
            yield ""
        yield from _cause(number, cause, said)


def _cause(number: int, cause: Cause, said: Collection[str]) -> Iterator[str]:
    margin = " " * len(f"{number}. ")
    yield f"{number}. {cause.code} {figures.line(cause.title)}: {cost(cause)}"
    yield margin + figures.line(cause.message)
    for proof in cause.evidence:
        yield f"{margin}= seen: {proof_words(proof)}"
    for word, text in lever_words(cause.lever):
        yield f"{margin}= {word}: {figures.line(text)}"
    if cause.confidence != "high":
        own = own_guards(cause, said)
        guards = f" ({figures.line('; '.join(own))})" if own else ""
        yield f"{margin}= confidence: {cause.confidence}{guards}"
    if cause.source:
        yield f"{margin}= source: {figures.line(cause.source)}"


def own_guards(cause: Cause, said: Collection[str]) -> list[str]:
    """What makes this cause less certain, beyond what is said of all that was traced."""
    return [g for g in cause.guards if g not in said and not g.endswith(MISSING)]


def cost(cause: Cause) -> str:
    """ "39.6 ms of a step (17.8%), communication, ranks 0-7"."""
    lost = f"{figures.duration(cause.lost_us)} of a step ({figures.share(cause.share)})"
    parts = [lost if cause.lost_us else "no time of the step by itself", cause.kind]
    if cause.ranks:
        parts.append(ranks_in_words(cause.ranks))
    return ", ".join(parts)


def proof_words(proof: Proof) -> str:
    """A piece of evidence in one line, with the events, the moment and the ranks it is about."""
    where = []
    if proof.events:
        names = ", ".join(figures.kernel(event, 48) for event in proof.events[:_MOST_EVENTS])
        more = len(proof.events) - _MOST_EVENTS
        where.append(f"{names}, {more} more" if more > 0 else names)
    if proof.start_us is not None:
        long = "" if proof.dur_us is None else f" for {figures.duration(proof.dur_us)}"
        where.append(f"ts {proof.start_us:.3f}".rstrip("0").rstrip(".") + long)
    if proof.ranks:
        where.append(ranks_in_words(proof.ranks))
    return figures.line(proof.text) + (f" [{'; '.join(where)}]" if where else "")


def lever_words(lever: Lever) -> Iterator[tuple[str, str]]:
    """What to do: in words, as changes of a plan, as a command, and what it gains."""
    if lever.text:
        yield "do", lever.text
    if lever.changes:
        yield "plan", ", ".join(f"{key} = {_value(value)}" for key, value in lever.changes.items())
    if lever.command:
        yield "type", lever.command
    if lever.gain_s:
        basis = f", {lever.basis}" if lever.basis else ""
        yield "gain", f"up to {figures.duration(1e6 * lever.gain_s)} of a step{basis}"


def _value(value: object) -> str:
    """A value as plan.toml has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def promises_table(promises: Sequence[Promise]) -> Table:
    """What the plan promised beside what was measured."""
    rows = [
        {
            "term": one.term,
            "predicted": figures.duration(1e6 * one.predicted_s),
            "measured": "" if one.measured_s is None else figures.duration(1e6 * one.measured_s),
            "ratio": _ratio(one),
            "verdict": figures.line(one.verdict),
        }
        for one in promises
    ]
    columns = (
        Column(key="term", title="term of the plan"),
        Column(key="predicted", title="predicted", align="right"),
        Column(key="measured", title="measured", align="right"),
        Column(key="ratio", title="measured/predicted", align="right"),
        Column(key="verdict", title="verdict"),
    )
    return table_of(columns, rows)


def _ratio(one: Promise) -> str:
    if one.measured_s is None or one.predicted_s <= 0:
        return ""
    return f"{one.measured_s / one.predicted_s:.2f}"
