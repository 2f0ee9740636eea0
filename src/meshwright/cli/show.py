"""`meshwright show`: the catalogues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = (
    "models",
    "gpus",
    "fabrics",
    "rules",
    "causes",
    "schedules",
    "stacks",
    "frameworks",
    "names",
)

_EPILOG = """\b
Examples:
  meshwright show models
  meshwright show gpus --json
  meshwright show gpus h100
  meshwright show names micro-batch
"""


@click.command(epilog=_EPILOG)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("word", default="")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(kind: str, word: str, as_json: bool) -> None:
    """List what is known: models, GPUs, networks, rules, causes, schedules, stacks, frameworks.

    `names` is the dictionary of knobs: what one framework calls what another one calls otherwise.
    With a WORD, only entries that hold it.
    """
    from meshwright.report import catalogues

    noun = kind.removesuffix("s")
    records: list[dict[str, Any]] = getattr(catalogues, f"{noun}_records")()
    if word:
        records = [r for r in records if catalogues.holds(word, *r.values())]
    if as_json:
        output.json({kind: records})
        return
    if word and not records:
        raise MeshwrightError(f"no {noun} holds {word!r}", hint=f"meshwright show {kind}")
    table: Callable[[Any], Any] = getattr(catalogues, f"{noun}_table")
    output.page([table(records)])
