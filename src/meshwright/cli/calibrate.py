"""`meshwright calibrate`: measures this machine and writes a cluster file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from meshwright.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

_EPILOG = """\b
Examples:
  meshwright calibrate -o this-machine.toml
  meshwright calibrate -o one-rank.toml --ranks 1 --quick
  meshwright plan config.json --cluster this-machine.toml --seq-len 512 --global-batch 32

\b
The file is a cluster.toml with a table [measured]:
  date, source, ranks, threads     when and with what; ranks that computed at once
  matmul, attention by precision   launch_s, share of peak_tflops (rate), and what pads each dim
  memory, pieces                   memory-bound kernels: seconds a byte or an element, near (in
                                   caches) and far (beyond near_elements)
  alone                            how much faster a rank is while the others rest
  collectives                      launch_s, share of the link's gb_per_s (rate), ramp_s; also
                                   FSDP2's gathers and reductions with their copies
  overheads                        host seconds of a layer, micro-batch, hand-over and step
"""


@click.command(epilog=_EPILOG)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="The file to write.")
@click.option(
    "--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="What."
)
@click.option(
    "--ranks", type=click.IntRange(1, 64), help="Ranks at once; by default all cores or GPUs."
)
@click.option("--quick", is_flag=True, help="Fewer shapes, a third of the time.")
@click.option("--json", "as_json", is_flag=True, help="Print what was measured as JSON.")
def calibrate(path: str, *, device: str, ranks: int | None, quick: bool, as_json: bool) -> None:
    """Measure this machine, so that plan and predict know it.

    Times matrix products, attention, memory-bound kernels, collectives between ranks and what the
    software costs besides, in under two minutes, and writes a cluster file that carries its own
    curves. Leave the machine alone meanwhile.
    """
    output.check_writable(path)
    from meshwright.api.training import need_libraries

    need_libraries("calibrating")
    from meshwright.train.calibrate.file import text_of
    from meshwright.train.calibrate.measure import calibrate as measure

    done = measure(device=device, ranks=ranks, quick=quick, progress=_progress())
    output.write_file(path, text_of(done))
    output.remark(f"wrote {path}")
    if as_json:
        from meshwright.train.calibrate.file import table_of

        output.json({"cluster": table_of(done.cluster), "errors": done.errors})


def _progress() -> Callable[[str], None]:
    """Prints what is measured now, with the seconds since the start."""
    begin_s = time.monotonic()
    return lambda text: click.echo(f"{time.monotonic() - begin_s:5.0f} s  {text}", err=True)
