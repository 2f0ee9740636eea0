"""`meshwright data plan`: what a run needs of its data and its storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from meshwright.base.finding import exit_code
from meshwright.base.units import parse_bytes, parse_tokens
from meshwright.cli import output
from meshwright.cli.data.judged import tell
from meshwright.cli.length import optional_length

_EPILOG = """\b
Examples:
  meshwright data plan --tokens 15T --seq-len 8192
  meshwright data plan --tokens 15T --plan plan.toml
  meshwright data plan --tokens 15T --have 5T --plan plan.toml --doc-tokens 700
  meshwright data plan --data shards/ --plan plan.toml --json
"""


@click.command(epilog=_EPILOG)
@click.option("--tokens", help="Tokens of the whole run, as 15T; by default the plan's.")
@click.option("--have", metavar="TOKENS", help="Distinct tokens there will be, where fewer.")
@click.option(
    "--seq-len",
    metavar="TOKENS",
    callback=optional_length,
    help="Tokens of a row; by default the plan's.",
)
@click.option("--plan", "plan_file", metavar="FILE", help="The plan.toml that trains on it.")
@click.option("--data", "folder", metavar="FOLDER", help="Shards that are there already.")
@click.option("--vocab-size", type=click.IntRange(2), help="Ids; by default the model's.")
@click.option("--doc-tokens", metavar="TOKENS", help="Tokens of a mean document.")
@click.option("--bytes-per-token", type=float, help="Bytes of text that make a token.")
@click.option("--loader-rate", metavar="TOKENS", help="Tokens/s that one loader worker makes.")
@click.option("--build-rate", metavar="BYTES", help="Text/s that one core builds from, as 20MB.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(*, plan_file: str | None, as_json: bool, **given: Any) -> int:
    """Bytes, files, throughput, loader workers and checkpoint traffic of a run.

    Without a plan only the corpus is sized. What the rules have against the data goes to stderr;
    exits with 1 when one of them is an error.
    """
    from meshwright.api.feeding import plan_data
    from meshwright.report.feeding import feeding_page, feeding_record

    found = plan_data(_asked(given), plan_file)
    if as_json:
        output.json(feeding_record(found))
    else:
        output.page(feeding_page(found))
        tell(found.findings)
    return exit_code(found.findings)


def _asked(given: dict[str, Any]) -> Any:
    from meshwright.api.feeding import Asked

    return Asked(
        tokens=_positive("--tokens", given["tokens"]),
        have=_positive("--have", given["have"]),
        seq_len=given["seq_len"],
        vocab_size=given["vocab_size"],
        document_tokens=_positive("--doc-tokens", given["doc_tokens"]),
        text_bytes_per_token=_positive("--bytes-per-token", given["bytes_per_token"]),
        loader_tokens_per_s=_positive("--loader-rate", given["loader_rate"]),
        build_text_bytes_per_s=_positive("--build-rate", given["build_rate"], parse=parse_bytes),
        folder=Path(given["folder"]) if given["folder"] else None,
    )


def _positive(option: str, text: str | float | None, *, parse: Any = parse_tokens) -> float | None:
    """A quantity above zero; None when it is not given."""
    if text is None:
        return None
    value: float = parse(text)
    if value <= 0 or value > _MOST:
        message = f"{text} is not possible: write a number above 0, as 15T"
        raise click.BadParameter(message, param_hint=option)
    return value


_MOST = 1e18  # of anything
