"""`meshwright measure`: memory and traffic of a plan without a GPU, beside the prediction."""

from __future__ import annotations

import click

from meshwright.cli import output

_EPILOG = """\b
Examples:
  meshwright measure plan.toml
  meshwright measure plan.toml --stage all
  meshwright measure plan.toml --rank 17 --layers full
  meshwright measure plan.toml --check --json

The training step of one rank runs in this process, on tensors without memory and a process group
without peers: sizes are those of the engine, to the byte. What a GPU adds is not in them: context,
buffers of NCCL, fragmentation. A deep model is run at two shallow depths, many micro-batches as two
small numbers of them; both extend along a straight line, and --check says how well.
"""


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.option("--rank", type=int, help="One global rank.")
@click.option(
    "--stage",
    type=click.Choice(("fullest", "first", "second", "last", "all")),
    default="fullest",
    show_default=True,
    help="The first rank of this pipeline stage.",
)
@click.option(
    "--layers",
    type=click.Choice(("extend", "full")),
    default="extend",
    show_default=True,
    help="Few layers and micro-batches, the rest extended; or all of them.",
)
@click.option("--check", is_flag=True, help="Run a third depth and say how well it extends.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def measure(
    file: str, *, rank: int | None, stage: str, layers: str, check: bool, as_json: bool
) -> None:
    """Measure full-size memory and traffic of the plan in FILE, a plan.toml.

    Prints peak, composition and traffic of a rank, each beside what `meshwright predict` says.
    """
    from meshwright import api
    from meshwright.api.measuring import measure as measure_plan
    from meshwright.report.measurement import measurement_page, measurement_record

    found = measure_plan(file, rank=rank, stage=stage, extend=layers == "extend", check=check)
    if as_json:
        output.json(measurement_record(found))
    else:
        output.page(measurement_page(api.read_job(file), found))
