"""One rule as a page: what it demands, why, examples, and how that is known."""

from __future__ import annotations

import re
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.rules.constraint import Constraint

SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        "4.1": "Data parallelism: partitioning",
        "4.2": "Data parallelism: synchronisation",
        "4.3": "Data parallelism: loading and storage",
        "5.1": "Model parallelism: structure partitioning",
        "5.2": "Model parallelism: parameter sharing",
        "5.3": "Model parallelism: communication",
        "6.1": "Compute parallelism: task assignment",
        "6.2": "Compute parallelism: resource scheduling",
        "6.3": "Compute parallelism: load balance",
        "7.1": "Communication parallelism: protocol",
        "7.2": "Communication parallelism: pattern",
        "7.3": "Communication parallelism: resources",
    }
)
_EVIDENCE = MappingProxyType(
    {
        "run": "seen when the framework ran",
        "read": "read in the framework's source",
        "doc": "stated in documentation",
        "paper": "stated in a paper",
        "arithmetic": "follows from arithmetic",
        "heuristic": "a rule of thumb",
    }
)


def constraints_of(code: str) -> tuple[Constraint, ...]:
    """The general rule of a code (any case), then every framework's demand that bears it."""
    from meshwright.rules.demand import all_demands
    from meshwright.rules.rule import find_rule

    general = find_rule(code)
    demands = tuple(d for d in all_demands() if d.code == code.upper())
    return ((general,) if general else ()) + demands


def all_constraints() -> tuple[Constraint, ...]:
    """General rules and demands of frameworks, by code, the general one first."""
    from meshwright.rules.demand import all_demands
    from meshwright.rules.rule import all_rules

    return tuple(sorted((*all_rules(), *all_demands()), key=lambda c: (c.code, not c.is_general)))


def rule_page(rule: Constraint) -> list[str]:
    """Everything about one rule or demand, as text."""
    section = f"{rule.section} {SECTIONS.get(rule.section, '')}".rstrip()
    return [
        f"{rule.code}: {rule.title}",
        f"{rule.severity.label}; {section}; {evidence_words(rule)}",
        "",
        *rule.doc.split("\n"),
        "",
        *consequence_lines(rule),
        f"Source: {rule.source}",
    ]


def rules_markdown(rules: Sequence[Constraint]) -> str:
    """Rules by section, each with what goes wrong, why, and its source."""
    text: list[str] = []
    for section in sorted({rule.section for rule in rules}):
        text += ["", f"## {section} {SECTIONS.get(section, '')}".rstrip()]
        text += [_markdown(rule) for rule in rules if rule.section == section]
    return "\n".join(text).lstrip("\n")


def _markdown(rule: Constraint) -> str:
    words, examples = _before_examples(rule.doc)
    body = f"{words}{indent(examples, '    ')}".rstrip()
    return "\n".join(
        [
            f"\n### {rule.code}: {rule.title}",
            f"\n*{rule.severity.label}, {evidence_words(rule)}*\n",
            *([body, ""] if body else []),
            *consequence_lines(rule),
            f"Source: {rule.source}",
        ]
    )


def _before_examples(doc: str) -> tuple[str, str]:
    """What a rule says, and the examples that end it."""
    first = re.search(r"^(Fails|Passes):", doc, re.MULTILINE)
    return (doc[: first.start()], doc[first.start() :]) if first else (doc, "")


def consequence_lines(rule: Constraint) -> list[str]:
    """What the framework does, where a demand says it, with a line for each that differs."""
    consequence = getattr(rule, "consequence", "")
    others = getattr(rule, "consequences", {})
    lines = [f"Consequence: {consequence}"] if consequence else []
    lines += [f"  on {scope}: {text}" for scope, text in others.items()]
    return [*lines, ""] if lines else []


def evidence_words(rule: Constraint) -> str:
    """How a rule is known, and for which frameworks it holds where that is not all."""
    known = evidence(rule.confidence)
    return known if rule.is_general else f"{known}, holds for {rule.scope}"


def evidence(confidence: str) -> str:
    """A word of `Constraint.confidence` in full; any other text as it is."""
    return _EVIDENCE.get(confidence, confidence)
