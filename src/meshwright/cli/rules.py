"""`meshwright rules`: every rule, and what only a framework demands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from meshwright.base.errors import MeshwrightError
from meshwright.cli import output

if TYPE_CHECKING:
    from meshwright.rules.constraint import Constraint

_EPILOG = """\b
Examples:
  meshwright rules
  meshwright rules --select MOD,COM2
  meshwright rules --framework torchtitan --format markdown > rules.md
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "markdown", "json")),
    default="text",
    show_default=True,
    help="A table, pages with reasons and examples, or records.",
)
@click.option("--select", multiple=True, metavar="CODES", help="Only these, as MOD,COM2.")
@click.option("--framework", metavar="NAME", help="Only what is asked of this framework.")
def rules(form: str, select: tuple[str, ...], framework: str | None) -> None:
    """List the rules that are checked: general ones, and what only a framework demands."""
    chosen = _chosen(select, framework)
    if form == "markdown":
        from meshwright.report.rules import rules_markdown

        sys.stdout.write(f"# Rules\n\n{rules_markdown(chosen)}\n")
        return
    from meshwright.report.catalogues import rule_record, rule_table

    records = [rule_record(rule) for rule in chosen]
    if form == "json":
        output.json({"rules": records})
    else:
        output.page(
            [rule_table(records), "", f"{len(records)} rules; next: meshwright explain CODE"]
        )


def _chosen(select: tuple[str, ...], framework: str | None) -> list[Constraint]:
    """The rules whose code is selected and that hold for the framework; MeshwrightError if none."""
    from meshwright.report.check.selecting import codes_of
    from meshwright.report.rules import all_constraints

    codes = codes_of(select)
    chosen = [r for r in all_constraints() if not codes or r.code.startswith(codes)]
    if framework:
        chosen = [r for r in chosen if _holds_for(r, framework)]
    if not chosen:
        raise MeshwrightError("no rule is left", hint="meshwright rules lists all of them")
    return chosen


def _holds_for(rule: Constraint, name: str) -> bool:
    from meshwright.frameworks.framework import framework as by_name
    from meshwright.rules.demand import Demand, applies

    return applies(rule, by_name(name)) if isinstance(rule, Demand) else rule.is_general
