"""General rules' errors that one framework or another runs all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.rules.demand import scope_name, versions_of

if TYPE_CHECKING:
    from meshwright.frameworks.reading import Reading
    from meshwright.rules.rule import Rule


def tolerated(rule: Rule, found: Finding, reading: Reading) -> Finding:
    """The finding, as a warning where the framework runs what the rule refuses."""
    if not rule.tolerated_by or found.severity is not Severity.ERROR:
        return found
    config = reading.config
    known = versions_of(config.framework, config.version, config.below)
    name = scope_name(rule.tolerated_by, known)
    if not name:
        return found
    return found.replace(severity=Severity.WARNING, notes=(*found.notes, f"{name} runs it"))
