"""`meshwright check`: what is wrong with training configurations of any framework."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, Severity
from meshwright.base.noun import dataclass
from meshwright.cli import output
from meshwright.report.check import FORMATS
from meshwright.report.check.report import Checked, Report, exit_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.report.check.texts import Texts

STDIN = "-"
_LARGEST_STDIN = 2 * 2**20
_EPILOG = """\b
Examples:
  meshwright check train_70b.sh
  meshwright check ds_config.json --model config.json --gpus A100-80GB:8 --nodes 4
  meshwright check recipe.toml launch.yaml --output-format sarif -o out.sarif
  meshwright check . --fix --diff
  meshwright check . --select MOD,COM2 --ignore CMP301 --statistics
  cat train.sh | meshwright check - --stdin-filename train.sh --output-format concise

A comment `# meshwright: ignore[MOD103]` at the end of a line silences that line, alone on a line
the whole file. Exits with 1 when there are errors or warnings, with 2 when a file is unreadable.
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER|-...")
@click.option("--model", metavar="NAME|FILE", help="A preset or config.json, where none is stated.")
@click.option("--gpus", metavar="NAME:COUNT", help="GPU type and GPUs per node, as A100-80GB:8.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes.")
@click.option("--framework", default="", metavar="NAME", help="Read as of this framework.")
@click.option("--framework-version", "version", default="", metavar="V", help="Its version.")
@click.option("--set", "sets", multiple=True, metavar="VARIABLE=VALUE", help="See `show names`.")
@click.option("--fix", is_flag=True, help="Mend what can be mended without changing the plan.")
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Let fixes of errors change the plan.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing.")
@click.option("--select", multiple=True, metavar="CODES", help="Only these, as MOD,COM2.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Not these.")
@click.option("--statistics", is_flag=True, help="Count findings by code.")
@click.option(
    "--output-format", "form", type=click.Choice(FORMATS), default="text", show_default=True
)
@click.option("-o", "--output-file", "target", metavar="FILE", help="Write the report there.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 in spite of findings.")
@click.option(
    "--only-recognized", is_flag=True, help="Pass over files of no known framework, as in folders."
)
@click.option("--stdin-filename", default="", metavar="NAME", help="What - is to be called.")
@click.option(
    "--compare/--no-compare",
    default=None,
    help="Look for a better plan; by default only where files are named.",
)
@click.option("-q", "--quiet", is_flag=True, help="Errors and warnings alone.")
def check(paths: tuple[str, ...], **asked: Any) -> int:
    """Check training configurations: Megatron, DeepSpeed, torchtitan, accelerate and others.

    What the files do not state, the model or the GPUs, may be given by options. A folder is
    searched for files that a framework recognizes.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # plans are small; threads cost at start
    if asked["target"]:
        output.check_writable(asked["target"])
    if asked["statistics"] and asked["form"] not in ("text", "json"):
        raise MeshwrightError(
            f"--statistics has no {asked['form']} form", hint="leave out --output-format"
        )
    if asked["unsafe"] and not (asked["fix"] or asked["diff"]):
        output.remark("--unsafe-fixes does nothing without --fix or --diff")
    named = _named(paths, stdin_text() if STDIN in paths else None, asked)
    report = _checked(named, asked)
    before = report.sources
    fixed: Mapping[str, str] = {}
    if asked["fix"] or asked["diff"]:
        report, fixed = _fixed(named, asked, report)
    if asked["diff"]:
        return _diff(report, before, fixed, asked)
    for file, text in fixed.items():
        if file not in named.texts:
            output.write_file(file, _with_mark(file, text))
    mended = "".join({**named.texts, **fixed}[name] for name in named.texts)
    _print(report, asked, mended=mended if asked["fix"] and named.texts else None)
    code = exit_code(report)
    return EXIT_OK if asked["exit_zero"] and code == EXIT_FINDINGS else code


# Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """What is to be checked: files that are named, those of folders, texts that are in no file."""

    files: tuple[str, ...]
    inside: tuple[str, ...]
    texts: Mapping[str, str]


def _named(paths: Sequence[str], stdin: str | None, asked: dict[str, Any]) -> _Named:
    """The files that the arguments stand for."""
    from meshwright.cli.walk import candidates

    texts = {} if stdin is None else {_stdin_name(asked): stdin}
    folders = [path for path in paths if path != STDIN and os.path.isdir(path)]
    files = [path for path in paths if path != STDIN and path not in folders]
    inside = dict.fromkeys(file for folder in folders for file in candidates(folder))
    return _Named(
        files=(*files, *texts),
        inside=tuple(file for file in inside if file not in files),
        texts=texts,
    )


def _checked(named: _Named, asked: dict[str, Any]) -> Report:
    """Checks named files together, and files of folders each for itself."""
    parts = []
    if named.files:
        parts.append(_read(named.files, asked, named.texts, alone=asked["only_recognized"]))
    if named.inside or not parts:
        parts.append(_read(named.inside, asked, named.texts, alone=True))
    return _joined(parts)


def _joined(parts: Sequence[Report]) -> Report:
    return Report(
        files=tuple(checked for part in parts for checked in part.files),
        skipped=tuple(file for part in parts for file in part.skipped),
        unsafe=any(part.unsafe for part in parts),
    )


def _read(
    files: Sequence[str], asked: dict[str, Any], texts: Mapping[str, str], *, alone: bool
) -> Report:
    """What is wanted of the findings of files; `alone` passes over those of no framework."""
    from meshwright.api.checking import check_files

    watched = alone and sys.stderr.isatty()
    report = check_files(
        list(files),
        **_given(asked),
        compare=not alone if asked["compare"] is None else asked["compare"],
        edits=not alone or _carries_edits(asked),
        only_recognized=alone,
        texts=texts,
        progress=_progress if watched else None,
    )
    if watched:
        click.echo("\r\033[K", err=True, nl=False)
    return _wanted(report, asked)


def _wanted(report: Report, asked: dict[str, Any]) -> Report:
    """The findings that are selected, loud enough, and silenced by no comment."""
    from meshwright.report.check.selecting import codes_of, is_silenced, silences, wanted

    select, ignore = codes_of(asked["select"]), codes_of(asked["ignore"])
    silent = silences(report.sources)
    least = Severity.WARNING if asked["quiet"] else Severity.INFO

    def kept(checked: Checked) -> Checked:
        chosen = wanted(checked.findings, select=select, ignore=ignore)
        placed = (f if f.file else f.replace(file=checked.file) for f in chosen)
        loud = (f for f in placed if f.severity >= least and not is_silenced(f, silent))
        return checked.replace(findings=tuple(loud))

    files = tuple(kept(checked) for checked in report.files)
    return report.replace(files=files, unsafe=asked["unsafe"])


def _stdin_name(asked: dict[str, Any]) -> str:
    return str(asked["stdin_filename"] or "<stdin>")


def stdin_text() -> str:
    """All of standard input, decoded; MeshwrightError when it is no text or too long."""
    stream = getattr(sys.stdin, "buffer", None)
    raw = (
        sys.stdin.read(_LARGEST_STDIN + 1).encode()
        if stream is None
        else stream.read(_LARGEST_STDIN + 1)
    )
    if len(raw) > _LARGEST_STDIN:
        raise MeshwrightError("standard input is larger than 2 MiB", hint="name a file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MeshwrightError("standard input is not UTF-8 text", hint="iconv -t UTF-8") from None


def _carries_edits(asked: dict[str, Any]) -> bool:
    """Whether what is printed needs fixes worked out: a folder's are otherwise only told."""
    return asked["fix"] or asked["diff"] or asked["form"] in ("json", "sarif")


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    """What the options state beside the files."""
    names = ("model", "gpus", "nodes", "framework", "version")
    return {name: asked[name] for name in names} | {"sets": variables_of(asked["sets"])}


def variables_of(texts: Iterable[str]) -> dict[str, str]:
    """Values by variable from "name=value"."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            hint = "type VARIABLE=VALUE, as --set micro_batch_size=2"
            raise MeshwrightError(f"cannot read {text!r}", hint=hint)
        values[name.strip().replace("-", "_")] = value
    return values


def _progress(done: int, total: int) -> None:
    """One line on stderr, rewritten in place."""
    click.echo(f"\r{done:,} of {total:,} files", err=True, nl=False)


# Mending


def _fixed(
    named: _Named, asked: dict[str, Any], report: Report
) -> tuple[Report, Mapping[str, str]]:
    """The report after all fixes, and the texts that they change; nothing is written yet.

    Named files are one whole, those of folders are settled each for itself. A model that is only
    looked at is not touched.
    """
    from meshwright.report.check.fixes import settle

    inside = frozenset(named.inside)
    whole = report.replace(files=tuple(c for c in report.files if c.file not in inside))
    single = [c for c in report.files if c.file in inside]
    texts: dict[str, str] = {}
    parts, count = [], 0
    for part, files in ((whole, named.files), *((Report(files=(c,)), (c.file,)) for c in single)):
        alone = asked["only_recognized"] or part is not whole

        def again(
            changed: Mapping[str, str], files: Sequence[str] = files, alone: bool = alone
        ) -> Report:
            return _read(files, asked, {**named.texts, **changed}, alone=alone)

        untouched = {str(asked["model"])}
        settled = settle(part, again, unsafe=asked["unsafe"], untouched=untouched)
        parts.append(settled.report)
        texts |= settled.texts
        count += settled.count
    joined = _joined(parts).replace(unsafe=asked["unsafe"], skipped=report.skipped, fixed=count)
    return joined, texts


def _diff(
    report: Report, before: Mapping[str, str], fixed: Mapping[str, str], asked: dict[str, Any]
) -> int:
    """Prints what would change; 1 when something would."""
    from meshwright.report.check.fixes import diff

    _write(diff(before, fixed), asked["target"])
    if not asked["quiet"]:
        count = report.fixed
        output.remark(f"Would fix {count} finding{'' if count == 1 else 's'}; nothing was written")
    if report.unreadable:
        return EXIT_USAGE
    return EXIT_FINDINGS if fixed and not asked["exit_zero"] else EXIT_OK


def _with_mark(file: str, text: str) -> str:
    """The text with the byte order mark that its file begins with, if it does."""
    try:
        with open(file, "rb") as stream:
            return f"\ufeff{text}" if stream.read(3) == b"\xef\xbb\xbf" else text
    except OSError:
        return text


# Printing


def _print(report: Report, asked: dict[str, Any], *, mended: str | None) -> None:
    """The report, on stdout or in a file; mended standard input takes stdout for itself."""
    from meshwright.report.check.texts import Texts

    texts = Texts(report.sources)
    if mended is not None:
        sys.stdout.write(mended)
        sys.stderr.write(_rendered(report, texts, asked, stream=sys.stderr))
        return
    if asked["target"]:
        output.write_file(asked["target"], _rendered(report, texts, asked, stream=None))
        if not asked["quiet"]:
            from meshwright.report.check.tally import tally_lines

            output.remark(*tally_lines(report), f"written to {asked['target']}")
        return
    sys.stdout.write(_rendered(report, texts, asked, stream=sys.stdout))


def _rendered(report: Report, texts: Texts, asked: dict[str, Any], *, stream: Any) -> str:
    """The report in the form asked for, colored where the stream shows colors."""
    from meshwright.report.check import render

    if asked["statistics"]:
        return _statistics(report, as_json=asked["form"] == "json")
    if asked["form"] != "text":
        return render(report, texts, form=asked["form"])
    from meshwright.report.check.color import colored, is_colored
    from meshwright.report.check.text import lines

    text = lines(report, texts, quiet=asked["quiet"])
    if stream is not None and is_colored(stream):
        text = colored(text)
    return "".join(line + "\n" for line in text)


def _statistics(report: Report, *, as_json: bool) -> str:
    """Findings counted by code."""
    from meshwright.report.check.tally import statistics, statistics_table, tally_lines
    from meshwright.report.machine import to_json
    from meshwright.report.page import plain

    rows = statistics(report.findings, unsafe=report.unsafe)
    if as_json:
        return to_json({"statistics": rows})
    return plain([statistics_table(rows), *tally_lines(report)] if rows else tally_lines(report))


def _write(text: str, target: str | None) -> None:
    if target:
        output.write_file(target, text)
    else:
        sys.stdout.write(text)
