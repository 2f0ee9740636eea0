"""`meshwright check`: what is wrong with training configurations of any framework."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, Severity
from meshwright.cli import output
from meshwright.report.check import FORMATS
from meshwright.report.check.report import Checked, Report, exit_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.report.check.fixes import Fixed
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
@click.option("--unsafe-fixes", "unsafe", is_flag=True, help="Let fixes change the plan.")
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
    stdin = stdin_text() if STDIN in paths else None
    report, fixed = _checked(paths, asked, stdin), None
    if asked["fix"] or asked["diff"]:
        fixed = _fixed(report, asked)
        if asked["diff"]:
            return _diff(report, fixed, asked)
        stdin = fixed.texts.get(_stdin_name(asked), stdin) if stdin is not None else None
        report = _mend(paths, asked, report, fixed, stdin=stdin)
    _print(report, asked, mended=stdin if asked["fix"] else None)
    code = exit_code(report)
    return EXIT_OK if asked["exit_zero"] and code == EXIT_FINDINGS else code


# Reading


def _checked(paths: Sequence[str], asked: dict[str, Any], stdin: str | None) -> Report:
    """Checks everything that is named, less what is not wanted."""
    from meshwright.report.check.selecting import codes_of, is_silenced, silences, wanted

    select, ignore = codes_of(asked["select"]), codes_of(asked["ignore"])
    report = _found(paths, asked, stdin)
    silent = silences(report.sources)

    def kept(checked: Checked) -> Checked:
        chosen = wanted(checked.findings, select=select, ignore=ignore)
        loud = (f for f in chosen if not is_silenced(f, silent))
        least = Severity.WARNING if asked["quiet"] else Severity.INFO
        return checked.replace(findings=tuple(f for f in loud if f.severity >= least))

    files = tuple(kept(checked) for checked in report.files)
    return report.replace(files=files, unsafe=asked["unsafe"])


def _found(paths: Sequence[str], asked: dict[str, Any], stdin: str | None) -> Report:
    """Checks files together, files of folders each for itself, and standard input."""
    from meshwright.cli.walk import candidates

    folders = [path for path in paths if path != STDIN and os.path.isdir(path)]
    files = [path for path in paths if path != STDIN and path not in folders]
    inside = [path for folder in folders for path in candidates(folder) if path not in files]
    passing_by = asked["only_recognized"]
    reports = [_read(files, asked, only_recognized=passing_by)] if files else []
    if folders:
        reports.append(_read(list(dict.fromkeys(inside)), asked, only_recognized=True))
    if stdin is not None:
        reports.append(_read_stdin(asked, stdin))
    return Report(
        files=tuple(checked for report in reports for checked in report.files),
        skipped=tuple(file for report in reports for file in report.skipped),
    )


def _read(files: list[str], asked: dict[str, Any], *, only_recognized: bool = False) -> Report:
    from meshwright.api.checking import check_files

    watched = only_recognized and sys.stderr.isatty()
    report = check_files(
        files,
        **_given(asked),
        compare=_compares(asked, by_default=not only_recognized),
        edits=not only_recognized or _carries_edits(asked),
        only_recognized=only_recognized,
        progress=_progress if watched else None,
    )
    if watched:
        click.echo("\r\033[K", err=True, nl=False)
    return report


def _read_stdin(asked: dict[str, Any], text: str) -> Report:
    """Checks what came from standard input."""
    from meshwright.api.checking import Given, check_text

    given = Given(**_given(asked))
    compare = _compares(asked, by_default=True)
    return Report(files=(check_text(text, file=_stdin_name(asked), given=given, compare=compare),))


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


def _compares(asked: dict[str, Any], *, by_default: bool) -> bool:
    """Whether to look for better plans, which takes longer than all rules."""
    return by_default if asked["compare"] is None else bool(asked["compare"])


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


def _fixed(report: Report, asked: dict[str, Any]) -> Fixed:
    """What the fixes make of the files; a model that is only looked at is not touched."""
    from meshwright.report.check.fixes import fix

    texts = {file: text for file, text in report.sources.items() if file != asked["model"]}
    return fix(report.findings, texts, unsafe=asked["unsafe"])


def _diff(report: Report, fixed: Fixed, asked: dict[str, Any]) -> int:
    """Prints what would change; 1 when something would."""
    from meshwright.report.check.fixes import diff

    text = diff(report.sources, fixed.texts)
    _write(text, asked["target"])
    if not asked["quiet"]:
        count = len(fixed.findings)
        output.remark(f"Would fix {count} finding{'' if count == 1 else 's'}; nothing was written")
    if report.unreadable:
        return EXIT_USAGE
    return EXIT_FINDINGS if fixed.texts and not asked["exit_zero"] else EXIT_OK


def _mend(
    paths: Sequence[str],
    asked: dict[str, Any],
    report: Report,
    fixed: Fixed,
    *,
    stdin: str | None,
) -> Report:
    """Writes the mended files, each whole or not at all, and checks them again."""
    if not fixed.texts:
        return report
    for file, text in fixed.texts.items():
        if stdin is None or file != _stdin_name(asked):
            output.write_file(file, _with_mark(file, text))
    return _checked(paths, asked, stdin).replace(fixed=len(fixed.findings))


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
