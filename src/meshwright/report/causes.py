"""Causes that `diagnose` names, as a table and as pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Table, table_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.diagnose.causes.rule import CauseRule

_COLUMNS = (
    Column(key="code", title="code"),
    Column(key="kind", title="class"),
    Column(key="title", title="title"),
    Column(key="needs", title="needs"),
)
NEEDS = {
    "ranks": "traces",
    "device": "traces of devices",
    "steps": "two steps or more",
    "across": "several ranks",
    "pipeline": "a pipeline's operations",
    "metrics": "metrics.jsonl",
    "memory": "a memory snapshot",
    "nccl": "an NCCL log",
    "job": "a plan",
}


def cause_record(rule: CauseRule) -> dict[str, Any]:
    """A cause for JSON."""
    return {
        "code": rule.code,
        "title": rule.title,
        "status": "diagnosed",
        "kind": rule.kind,
        "needs": list(rule.needs),
        "said_by": list(rule.said_by),
        "same_as": list(rule.same_as),
        "source": rule.source,
        "doc": rule.doc,
    }


def cause_records() -> list[dict[str, Any]]:
    """One mapping a cause, by code."""
    from meshwright.diagnose.causes.rule import all_causes

    return [cause_record(rule) for rule in all_causes()]


def cause_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """Causes with code, class, title and the evidence without which they are not named."""
    return table_of(_COLUMNS, [{**r, "needs": _needs(r["needs"])} for r in records])


def cause_page(rule: CauseRule) -> list[str]:
    """Everything about one cause, as text."""
    return [
        f"{rule.code}: {rule.title}",
        f"{rule.kind}; named by `meshwright diagnose` from {_needs(rule.needs)}",
        "",
        *rule.doc.split("\n"),
        "",
        *_said_better(rule),
        f"Source: {rule.source}",
    ]


def causes_markdown() -> str:
    """Causes by class, each with what shows it, what it costs, what to do."""
    from meshwright.diagnose.causes.rule import all_causes
    from meshwright.diagnose.diagnosis import CLASSES

    text: list[str] = []
    for kind in CLASSES:
        text += ["", f"## {kind.capitalize()}"]
        text += [_markdown(rule) for rule in all_causes() if rule.kind == kind]
    return "\n".join(text).lstrip("\n")


def _markdown(rule: CauseRule) -> str:
    said = [part for line in _said_better(rule) for part in (line, "")]
    return "\n".join(
        [
            f"\n### {rule.code}: {rule.title}",
            f"\n*Needs {_needs(rule.needs)}*\n",
            rule.doc,
            "",
            *said,
            f"Source: {rule.source}",
        ]
    )


def _said_better(rule: CauseRule) -> list[str]:
    """Which other causes take precedence."""
    first = [f"Has what these leave: {', '.join(rule.said_by)}."] if rule.said_by else []
    return first + ([f"Not told beside: {', '.join(rule.same_as)}."] if rule.same_as else [])


def _needs(names: Sequence[str]) -> str:
    return " and ".join(NEEDS[name] for name in names) or "traces or a pipeline's operations"
