"""The page of a code, whether one rule bears it, a framework's demand, or several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.report.rules import constraints_of, rule_page

if TYPE_CHECKING:
    from meshwright.base.finding import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is known of a code, for formats that carry the help of a rule."""

    title: str
    summary: str
    severity: Severity
    section: str
    text: str
    markdown: str


def page_of(code: str) -> Page | None:
    """The page of a code; None where neither a rule nor a demand bears it."""
    found = constraints_of(code)
    if not found:
        return None
    text = "\n".join("\n".join(rule_page(rule)) for rule in found)
    return Page(
        title=found[0].title,
        summary=found[0].summary,
        severity=max(rule.severity for rule in found),
        section=found[0].section,
        text=text,
        markdown="\n\n".join(
            f"**{rule.title}**\n\n{rule.doc}\n\nSource: {rule.source}" for rule in found
        ),
    )
