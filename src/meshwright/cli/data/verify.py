"""`meshwright data verify`: whether a folder of shards is, byte for byte, what was written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from meshwright.base.finding import exit_code
from meshwright.cli import output
from meshwright.cli.data.judged import PLAN, findings_under, tell, with_findings
from meshwright.data.shards.names import SAMPLE
from meshwright.report.page import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

_EPILOG = """\b
Examples:
  meshwright data verify shards/
  meshwright data verify shards/ --sample 1000
  meshwright data verify shards/ --plan plan.toml
  meshwright data verify shards/ --json | jq .findings[].file

Exits with 1 when anything is wrong.
"""


@click.command(epilog=_EPILOG)
@click.argument("folder")
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=SAMPLE,
    show_default=True,
    help="Documents of each file of saved text to encode again.",
)
@PLAN
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(folder: str, *, sample: int, plan_file: str | None, as_json: bool) -> int:
    """Read every byte of FOLDER and compare it with its manifest.

    Finds any byte that was changed, lost or added, files that are missing or foreign, shards whose
    documents are not all there once, and, where the cleaned text was saved, tokens that are not
    those of the text.
    """
    from meshwright.data.shards.verify import verify as check
    from meshwright.report.shards import verified_page, verified_record

    with_progress = not as_json and is_terminal(sys.stderr)
    found = check(folder, sample=sample, on_bytes=_progress() if with_progress else None)
    if with_progress:
        click.echo("\r\033[K", err=True, nl=False)
    misfits = () if exit_code(found.findings) else findings_under(folder, plan_file)
    if as_json:
        output.json(with_findings(verified_record(folder, found), misfits))
    else:
        output.page(verified_page(folder, found))
        tell(misfits)
    return exit_code((*found.findings, *misfits))


def _progress() -> Callable[[int, int], None]:
    """One line on stderr, rewritten in place: how far, how fast, how long still."""
    import time

    from meshwright.base.units import format_bytes, format_duration, format_rate

    started = time.monotonic()

    def on_bytes(read: int, total: int) -> None:
        rate = max(1.0, read / max(1e-6, time.monotonic() - started))
        left = format_duration((total - read) / rate)
        far = f"{format_bytes(read)} of {format_bytes(total)}, {format_rate(rate)}, {left} to go"
        click.echo(f"\r\033[K{far}", err=True, nl=False)

    return on_bytes
