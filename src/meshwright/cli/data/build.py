"""`meshwright data build`: from raw text to packed shards."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import EXIT_OK, Severity, exit_code
from meshwright.base.units import parse_duration
from meshwright.cli import output
from meshwright.cli.data.judged import PLAN, findings_before, findings_under, tell
from meshwright.cli.data.options import OPTIONS, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshwright.base.finding import Finding
    from meshwright.data.settings import Build

_EPILOG = """\b
Examples:
  meshwright data build config.toml
  meshwright data build raw/*.jsonl.zst --tokenizer qwen/ --seq-len 8192 --pack best-fit -o shards/
  meshwright data build raw/ --filters gopher,c4 --language en --near-dedup --save-text -o text/
  meshwright data build config.toml --dry-run
  sbatch --array=0-15 --wrap "meshwright data build config.toml --engine array"
  meshwright data build raw/*.jsonl --tokenizer t.json -o shards/ --write-config config.toml
\b
docs/reference/data.md has every key of a config.toml and every file of the output; flags win over
the config.toml. `meshwright explain REASON` says which keys decide a reason, such as
gopher_quality.words. A build that was interrupted goes on when the same command is given again;
with other settings it is refused, unless all that is finished still fits.
"""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@click.command(epilog=_EPILOG)
@click.argument("files", nargs=-1)
@_options
@click.option("--workers", type=click.IntRange(1), help="Processes; one for each core by default.")
@click.option(
    "--engine", default="auto", show_default=True, help="auto, inline, processes, array, ray."
)
@click.option("--part", default="", metavar="I/N", help="This is share I of N, counted from 0.")
@click.option("--patience", default="1h", show_default=True, help="For parts that have not begun.")
@click.option(
    "--resume",
    is_flag=True,
    help="Go on after an interruption; the same without it.",
)
@click.option("--fresh", is_flag=True, help="Remove what a build left in the folder, start anew.")
@click.option(
    "--reuse",
    is_flag=True,
    help="Other settings than before: keep what fits of unfinished or kept work.",
)
@click.option(
    "--dry-run", is_flag=True, help="Build a sample, say what a build would make and cost."
)
@click.option("--write-config", metavar="FILE", help="Write the settings as TOML, build nothing.")
@PLAN
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def build(
    files: tuple[str, ...],
    *,
    workers: int | None,
    engine: str,
    part: str,
    patience: str,
    resume: bool,
    fresh: bool,
    reuse: bool,
    dry_run: bool,
    write_config: str | None,
    plan_file: str | None,
    quiet: bool,
    as_json: bool,
    **asked: Any,
) -> int:
    """Make packed shards of tokens from FILES.

    FILES are jsonl, parquet or text, plain, .gz or .zst, as paths, globs, folders or URLs; or one
    config.toml with all settings. Steps are taken in this order: repair, PII, language, filters,
    decontamination, duplicates, tokens, split and shuffle, packing.
    """
    if resume and fresh:
        raise MeshwrightError("--fresh leaves nothing to --resume", hint="give one of them")
    settings = settings_of(files, asked)
    if write_config:
        return _write_config(settings, write_config)
    seq_len = settings.pack.seq_len if settings.tokenizer is not None else None
    if code := tell(findings_before(seq_len, plan_file)):
        return code
    if dry_run:
        return _dry_run(settings, workers, as_json=as_json)
    from meshwright.cli.data.progress import watching
    from meshwright.data.building import DONE
    from meshwright.data.building import build as make

    findings: list[Finding] = []
    with going_on(), watching(quiet=quiet) as on_progress:
        manifest = make(
            settings,
            workers=workers,
            engine=engine,
            part=part,
            patience_s=parse_duration(patience),
            fresh=fresh,
            reuse=reuse,
            on_progress=on_progress,
            on_finding=findings.append,
        )
    code = _tell(findings, quiet=quiet)
    built = not any(finding.reason == DONE for finding in findings)
    _say(settings.output.folder, manifest, built=built, as_json=as_json, quiet=quiet)
    return max(code, tell(findings_under(settings.output.folder, plan_file)))


@contextlib.contextmanager
def going_on() -> Iterator[None]:
    """Says how a build that is interrupted within goes on."""
    try:
        yield
    except KeyboardInterrupt:
        output.remark("what is finished is kept: run the same command again to go on")
        raise


def _tell(findings: Sequence[Finding], *, quiet: bool) -> int:
    """Prints what the build had to say, errors alone if it is to be quiet; 1 where there is one."""
    from meshwright.report.findings import findings_lines

    said = [one for one in findings if one.severity is Severity.ERROR or not quiet]
    if said:
        output.remark(*findings_lines(said))
    return exit_code(said)


def _write_config(settings: Build, path: str) -> int:
    from meshwright.data.reading import write_build

    output.check_writable(path)
    text = write_build(settings, folder=Path(path).parent)
    if Path(path).is_file() and Path(path).read_bytes() != text.encode():
        raise MeshwrightError(
            f"{path!r} is there already, with other content",
            hint="name another file, or remove that one first",
        )
    output.write_file(path, text)
    output.remark(f"written: {path}")
    return EXIT_OK


def _dry_run(settings: Build, workers: int | None, *, as_json: bool) -> int:
    """What a sample says of the whole build."""
    from meshwright.data.building import plan_job
    from meshwright.data.dry import dry_run
    from meshwright.data.outcome import foreseen
    from meshwright.data.work.engines.choice import cores
    from meshwright.report.build import projection_page, projection_record

    findings: list[Finding] = []
    found = dry_run(plan_job(settings, on_finding=findings.append))
    code = _tell([*findings, *foreseen(settings, found)], quiet=False)
    if as_json:
        output.json(projection_record(found))
    else:
        output.page(projection_page(found, workers=workers or cores()))
    return code


def _say(folder: str, manifest: Any, *, built: bool, as_json: bool, quiet: bool) -> None:
    """The summary; only what the folder holds where nothing was `built`."""
    from meshwright.report.build import summary_page, summary_record

    if as_json:
        output.json(summary_record(folder, manifest, built=built))
    elif not quiet:
        output.page(summary_page(folder, manifest, built=built))
