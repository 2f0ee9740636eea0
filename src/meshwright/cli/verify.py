"""`meshwright verify`: is a plan exact, before it costs money."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from meshwright import api
from meshwright.base.finding import EXIT_FINDINGS, EXIT_OK
from meshwright.cli import output

if TYPE_CHECKING:
    from meshwright.train.verify import Verdict

_EPILOG = """\b
Examples:
  meshwright verify plan.toml
  meshwright verify plan.toml --ranks 4
  meshwright verify plan.toml --json

\b
Exit code 0: every gradient equals that of one process; 1: some tensor differs, and which.
"""


@click.command(epilog=_EPILOG)
@click.argument("file")
@click.option(
    "--ranks",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="The most processes that a shrunk plan may take.",
)
@click.option(
    "--steps",
    type=click.IntRange(1, 100),
    default=4,
    show_default=True,
    help="Optimizer steps that are compared.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first values.")
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    help="Seconds after which a shrunk plan that hangs has failed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(file: str, *, ranks: int, steps: int, seed: int, timeout: float, as_json: bool) -> int:
    """Prove that the plan in FILE computes what one process does.

    The plan is shrunk to a few processes on this machine's cores and its model to a tiny one of the
    same family, with all axes, the schedule, recomputation and sharding that the plan has. The code
    that trains runs it in float64, and every gradient, the clipped norm and the parameters after
    some steps are compared with transformers' own model in one process.
    """
    from meshwright.api.verifying import verify as run
    from meshwright.report.verdicts import summary_line, verdict_lines, verdict_record

    job = api.read_job(file)

    def tell(verdict: Verdict) -> None:
        if not as_json:
            output.page(verdict_lines(verdict))

    verdicts = run(file, ranks=ranks, steps=steps, seed=seed, timeout_s=timeout, on_verdict=tell)
    exact = all(verdict.exact for verdict in verdicts)
    if as_json:
        output.json({"exact": exact, "plans": [verdict_record(v) for v in verdicts]})
    else:
        output.page(["", summary_line(verdicts, model=job.model.name)])
    return EXIT_OK if exact else EXIT_FINDINGS
