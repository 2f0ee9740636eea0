"""`meshwright diagnose`: from the traces of a run to what slows it down and what to change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.cli import output
from meshwright.report.page import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from meshwright.diagnose.diagnosis import Diagnosis

_EPILOG = """\b
Examples:
  meshwright diagnose trace_rank*.json.gz
  meshwright diagnose traces/ --plan plan.toml
  meshwright diagnose traces/ --html report.html --perfetto small.json
  meshwright diagnose traces/ --calibrate -o my-cluster.toml
  meshwright diagnose runs/a --nccl-log nccl.log --memory-snapshot snap.json --json

\b
PATHS are files, folders of them or patterns:
  traces of torch.profiler (.json, .json.gz), one a rank, of any release since 2021
  traces of a pipeline's operations, and folders of `meshwright train`
  memory snapshots as JSON; logs of NCCL_DEBUG=INFO

Give the traces of all ranks where you have them: waiting is then told from transfer, and who is
waited for is named. Exits with 0 when there is an answer, also where causes are found, and 2 where
nothing could be read.
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1)
@click.option("--plan", "plan", metavar="FILE", help="The plan.toml that was run: term by term.")
@click.option("--nccl-log", "nccl_logs", multiple=True, metavar="FILE", help="Log of NCCL_DEBUG.")
@click.option(
    "--memory-snapshot",
    "memory_snapshots",
    multiple=True,
    metavar="FILE",
    help="Snapshot of the allocator, as JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", metavar="FILE", help="Write a report with charts, for any browser.")
@click.option("--perfetto", metavar="FILE", help="Write a small trace for ui.perfetto.dev.")
@click.option("--calibrate", is_flag=True, help="Write what was measured as a cluster file.")
@click.option("-o", "--output", "target", metavar="FILE", help="The file that --calibrate writes.")
@click.option(
    "--workers", type=click.IntRange(1), help="Processes that read; by default one a core."
)
def diagnose(paths: tuple[str, ...], **asked: Any) -> int:
    """Say where the time of a run went, why, and what to change.

    Reads profiler traces in PATHS and answers first in three sentences; then the split of a step,
    whose parts sum to it, ranks, collectives, and causes with their evidence and what to do.
    """
    _check(paths, asked)
    from meshwright.api.diagnosing import diagnose as diagnose_paths

    found = diagnose_paths(
        paths,
        job=asked["plan"],
        nccl_logs=asked["nccl_logs"],
        memory_snapshots=asked["memory_snapshots"],
        workers=asked["workers"],
        progress=_progress(),
    )
    _write(found, asked)
    if asked["as_json"]:
        from meshwright.report.diagnosis.record import diagnosis_record

        output.json(diagnosis_record(found))
    else:
        from meshwright.report.diagnosis.page import diagnosis_page

        output.page(diagnosis_page(found))
    if asked["calibrate"]:
        _calibrate(found, asked["target"])
    return 0


def _check(paths: tuple[str, ...], asked: dict[str, Any]) -> None:
    """Wrong usage is said before anything is read."""
    if not (paths or asked["nccl_logs"] or asked["memory_snapshots"]):
        raise click.UsageError("nothing to diagnose: give trace files or folders")
    if asked["calibrate"] != (asked["target"] is not None):
        raise click.UsageError("--calibrate and -o FILE go together")
    given = (*paths, *asked["nccl_logs"], *asked["memory_snapshots"], asked["plan"] or "")
    targets = [asked[name] for name in ("html", "perfetto", "target") if asked[name] is not None]
    if not all((*paths, *asked["nccl_logs"], *asked["memory_snapshots"])):
        raise click.UsageError("an empty name names no file")  # an unset variable of a shell
    for target in targets:
        output.check_writable(target)
        _check_own(target, given)
    if len({Path(target).resolve() for target in targets}) < len(targets):
        raise click.UsageError("two outputs are to be written to one file")


def _check_own(target: str, given: Iterable[str]) -> None:
    """MeshwrightError where an output is one of the inputs, or a trace would lie among them."""
    wanted = Path(target)
    for one in (Path(text) for text in given if text):
        if wanted.exists() and one.exists() and wanted.samefile(one):
            reason = "is one of the files to be read"
        elif (
            one.is_dir() and wanted.suffix != ".html" and one.resolve() in wanted.resolve().parents
        ):
            reason = "lies in a folder that is read: the next diagnosis would read it"
        else:
            continue
        raise MeshwrightError(f"{target!r} {reason}", hint="name a file elsewhere")


def _write(found: Diagnosis, asked: dict[str, Any]) -> None:
    """The reports that were asked for."""
    if asked["html"]:
        from meshwright.report.diagnosis.html import html_report

        _file(asked["html"], html_report(found))
    if asked["perfetto"]:
        from meshwright.report.diagnosis.perfetto import perfetto_json

        _file(asked["perfetto"], perfetto_json(found))


def _calibrate(found: Diagnosis, target: str) -> None:
    """The cluster file, last: traces may measure nothing and be diagnosed all the same."""
    from meshwright.api.diagnosing.calibrating import calibrated
    from meshwright.report.diagnosis.calibration import calibration_blocks

    measured, text = calibrated(found)
    _file(target, text)
    show(("", *calibration_blocks(measured)), sys.stderr)


def _file(path: str, text: str) -> None:
    output.write_file(path, text)
    output.remark(f"wrote {path}")


def _progress() -> Callable[[int, int], None] | None:
    """Counts files on a terminal; says nothing elsewhere."""
    from meshwright.report.page import is_terminal

    if not is_terminal(sys.stderr):
        return None

    def show(done: int, of: int) -> None:
        if of > 1:
            sys.stderr.write(f"\rread {done:,} of {of:,} traces" if done < of else "\r\x1b[K")
            sys.stderr.flush()

    return show
