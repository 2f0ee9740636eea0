"""One rule as a page: what it demands, why, examples, and how that is known."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.rules.rule import Rule

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


def rule_page(rule: Rule) -> list[str]:
    """Everything about one rule, as text."""
    section = f"{rule.section} {SECTIONS.get(rule.section, '')}".rstrip()
    return [
        f"{rule.code}: {rule.title}",
        f"{rule.severity.label}; {section}; {evidence_words(rule)}",
        "",
        *rule.doc.split("\n"),
        "",
        f"Source: {rule.source}",
    ]


def evidence_words(rule: Rule) -> str:
    """How a rule is known, and for which frameworks it holds where that is not all."""
    known = _EVIDENCE.get(rule.confidence, rule.confidence)
    return known if rule.scope == "all" else f"{known}, holds for {rule.scope}"
