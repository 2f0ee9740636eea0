"""`meshwright data mix`: several folders of shards in one stream, by weight."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.base.table import Column, table_of
from meshwright.base.units import format_count, parse_tokens
from meshwright.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.mix import Blend
    from meshwright.report.page import Block

REPEATS = 4.0  # beyond so many epochs further ones teach little: Muennighoff et al. 2023, figure 3
_EPILOG = """\b
Examples:
  meshwright data mix web/ code/ --weights 0.7,0.3 -o blend.toml
  meshwright data mix web/ code/ --weights 0.7,0.3 --tokens 2T -o blend.toml
  meshwright data mix a/ b/ c/ -o blend.toml           # each by the tokens that it has
"""
_COLUMNS = (
    Column(key="folder", title="folder"),
    Column(key="share", title="share", align="right"),
    Column(key="rows", title="rows", align="right"),
    Column(key="tokens", title="tokens", align="right"),
)
_EPOCHS = Column(key="epochs", title="epochs", align="right")


@click.command(epilog=_EPILOG)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
@click.option("--weights", metavar="W,W,...", help="Shares of the samples, one for each folder.")
@click.option("--tokens", "asked", metavar="TOKENS", help="Of the run, as 2T: tells the epochs.")
@click.option("--output", "-o", "target", required=True, metavar="FILE", help="As blend.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def mix(
    folders: tuple[str, ...], *, weights: str | None, asked: str | None, target: str, as_json: bool
) -> None:
    """Blend folders of shards that `meshwright data build` made, for the loader and for Megatron.

    Paths are written relative to the blend where they are given so. The folders must agree in
    tokenizer, length of rows and type of the ids. Also prints what Megatron's --data-path must be
    for the same blend.
    """
    from meshwright.data.mix import blend_text, make_blend, megatron_data_path

    output.check_writable(target)
    tokens = None if asked is None else parse_tokens(asked)
    blend = make_blend(folders, weights=_numbers(weights), beside=Path(target).parent)
    record = _record(folders, blend, tokens)
    record["megatron_data_path"] = megatron_data_path(folders, blend)
    output.write_file(target, blend_text(blend))
    _tell_repeated(folders, blend)
    if as_json:
        output.json(record)
    else:
        output.page(_page(record))
        output.remark(f"written: {target}")


def _tell_repeated(folders: tuple[str, ...], blend: Blend) -> None:
    """Says so where the same shards are named more than once."""
    from meshwright.base.finding import Finding, Severity
    from meshwright.report.findings import findings_lines

    digests = [source.manifest for source in blend.sources]
    told = [
        Finding(
            message=f"{folder} holds the same shards as {folders[digests.index(digest)]}, named "
            "before it: each goes through all of their rows",
            severity=Severity.WARNING,
            hint="name them once, with the sum of the weights",
        )
        for place, (folder, digest) in enumerate(zip(folders, digests, strict=True))
        if digests.index(digest) != place
    ]
    if told:
        output.remark(*findings_lines(told))


def _numbers(text: str | None) -> tuple[float, ...]:
    """Weights from "0.7,0.3"; MeshwrightError when they are no numbers."""
    if text is None:
        return ()
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise MeshwrightError(
            f"cannot read --weights {text!r}", hint="numbers with commas between, as 0.7,0.3"
        ) from None


def _record(folders: tuple[str, ...], blend: Blend, tokens: float | None) -> dict[str, Any]:
    """What is printed, as plain values."""
    epochs = blend.epochs(tokens) if tokens is not None else (None,) * len(folders)
    once = len({source.manifest for source in blend.sources}) == len(blend.sources)
    first = min(1 / passed for passed in blend.epochs(1.0)) if once else None
    return {
        "sources": [
            {
                "folder": folder,
                "share": share,
                "rows": source.rows,
                "tokens": source.tokens,
                "epochs": passed,
            }
            for folder, share, source, passed in zip(
                folders, blend.shares, blend.sources, epochs, strict=True
            )
        ],
        "seq_len": blend.seq_len,
        "tokens": tokens,
        "tokens_without_repeats": first,
        "deviation_rows": blend.deviation,
    }


def _page(record: Mapping[str, Any]) -> Iterator[Block]:
    from meshwright.report.shares import percent

    asked = record["tokens"] is not None
    rows = [
        {
            "folder": source["folder"],
            "share": percent(source["share"]),
            "rows": f"{source['rows']:,}",
            "tokens": format_count(source["tokens"]),
            "epochs": f"{source['epochs']:.2f}" if asked else None,
        }
        for source in record["sources"]
    ]
    yield table_of((*_COLUMNS, _EPOCHS) if asked else _COLUMNS, rows)
    yield ""
    if record["tokens_without_repeats"] is not None:  # None where a folder is named twice
        yield f"nothing repeats within {format_count(record['tokens_without_repeats'])} tokens"
    yield (
        f"no source is ever more than {record['deviation_rows']:.2f} rows"
        f" of {record['seq_len']:,} tokens off its share"
    )
    for source in record["sources"]:
        if asked and source["epochs"] > REPEATS:
            yield (
                f"{source['folder']}: {source['epochs']:.1f} epochs; beyond {REPEATS:g} a repeat "
                "teaches little (Muennighoff et al. 2023)"
            )
    yield ""
    yield f"Megatron: --data-path {shlex.join(record['megatron_data_path'])}"
