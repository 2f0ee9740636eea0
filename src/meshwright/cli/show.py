"""`meshwright show`: the catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshwright.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = ("models", "gpus", "fabrics", "rules", "schedules", "stacks")

_EPILOG = """\b
Examples:
  meshwright show models
  meshwright show gpus --json
"""


@click.command(epilog=_EPILOG)
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(kind: str, as_json: bool) -> None:
    """List known models, GPUs, networks, rules, schedules or software stacks."""
    from meshwright.report import catalogues

    noun = kind.removesuffix("s")
    records: list[dict[str, Any]] = getattr(catalogues, f"{noun}_records")()
    if as_json:
        output.json({kind: records})
        return
    table: Callable[[Any], Any] = getattr(catalogues, f"{noun}_table")
    output.page([table(records)])
