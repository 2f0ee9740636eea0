"""`meshwright data show`: rows and documents of a folder of shards, decoded."""

from __future__ import annotations

import click

from meshwright.base.errors import MeshwrightError
from meshwright.cli import output

_EPILOG = """\b
Examples:
  meshwright data show shards/ --row 17
  meshwright data show shards/ --row 17 --ids
  meshwright data show shards/ --document 3 --split valid --characters 0
  meshwright data show shards/ --read raw/part-000.jsonl:75
"""


@click.command(epilog=_EPILOG)
@click.argument("folder")
@click.option("--row", type=int, help="A row by its number in the split; 0 by default.")
@click.option("--document", type=int, help="A document by its number in the split.")
@click.option("--read", "place", metavar="FILE:LINE", help="What became of the one read there.")
@click.option("--split", type=click.Choice(("train", "valid")), default="train", show_default=True)
@click.option(
    "--characters",
    type=click.IntRange(0),
    default=600,
    show_default=True,
    help="Of each piece to print, its beginning and end; 0 = all.",
)
@click.option("--ids", is_flag=True, help="Print token ids in place of text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full.")
def show(
    folder: str,
    *,
    row: int | None,
    document: int | None,
    place: str | None,
    split: str,
    characters: int,
    ids: bool,
    as_json: bool,
) -> None:
    """Show a row of FOLDER as text, with the borders of its documents and where they were read."""
    given = [name for name, value in _asked(row, document, place) if value is not None]
    if len(given) > 1:
        raise MeshwrightError(f"{' and '.join(given)} exclude each other", hint="give one of them")
    if place is not None:
        _locate(folder, place, as_json=as_json)
        return
    from meshwright.data.shards.show import show_document, show_row
    from meshwright.report.shards import shown_page, shown_record

    if document is not None:
        shown = show_document(folder, document, split=split)
    else:
        shown = show_row(folder, row or 0, split=split)
    if as_json:
        output.json(shown_record(shown))
    else:
        output.page(shown_page(shown, characters=characters, ids=ids))


def _asked(*values: object) -> list[tuple[str, object]]:
    return list(zip(("--row", "--document", "--read"), values, strict=True))


def _locate(folder: str, place: str, *, as_json: bool) -> None:
    """Prints what became of the document at FILE:LINE."""
    from meshwright.data.shards.show import locate
    from meshwright.report.shards import origin_page, origin_record

    located = locate(folder, place)
    if as_json:
        output.json(origin_record(located))
    else:
        output.page(origin_page(folder, located))
