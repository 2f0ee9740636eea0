"""The command line: lazy commands, exit codes, and errors without tracebacks.

Exit codes: 0 done, 1 findings at error level or no plan that fits, 2 wrong usage, unreadable input
or an internal error, 130 interrupted. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn, TextIO

import click

from meshwright import __version__
from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from meshwright.cli.lazy import Lazy

_COMPLETE = "_MESHWRIGHT_COMPLETE"  # the variable by which click's completion scripts ask
COMMANDS = {  # name: where it is defined, and its line in the help, which needs no import
    "plan": ("meshwright.cli.plan", "Find the best parallel strategy for a model on a cluster."),
    "check": ("meshwright.cli.check", "What is wrong with anyone's training configuration."),
    "convert": ("meshwright.cli.convert", "Write a configuration in another framework's words."),
    "predict": ("meshwright.cli.predict", "Memory and time of one given plan."),
    "explain": ("meshwright.cli.explain", "Why a figure is what it is, or what a rule demands."),
    "rules": ("meshwright.cli.rules", "List every rule, and what only a framework demands."),
    "show": ("meshwright.cli.show", "List known models, GPUs, frameworks, names of knobs, ..."),
    "data": ("meshwright.cli.data", "From raw text to packed shards: clean, deduplicated."),
    "export": ("meshwright.cli.export", "Write a checkpoint as safetensors for transformers."),
    "launch": ("meshwright.cli.launch", "Write the file that runs a plan on a scheduler."),
    "measure": ("meshwright.cli.measure", "Memory and traffic of a plan, read off without a GPU."),
    "calibrate": ("meshwright.cli.calibrate", "Measure this machine for predictions."),
    "verify": ("meshwright.cli.verify", "Prove a plan exact on a few processes, without a GPU."),
    "train": ("meshwright.cli.train", "Train a model under a plan: start, resume, watch."),
    "diagnose": ("meshwright.cli.diagnose", "Why a run is slow: from its traces to the cause."),
    "validate": ("meshwright.evidence.command", "Compare predictions with published runs."),
    "fit": ("meshwright.evidence.command", "Refit the efficiencies to measurements."),
}


class Commands(Lazy):
    """The commands of meshwright."""

    table = COMMANDS


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`meshwright COMMAND --help` shows the options of a command, with examples.",
)
@click.version_option(__version__, prog_name="meshwright", message="%(prog)s %(version)s")
def cli() -> None:
    """Plan, check and explain parallel training of large language models."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits with its code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """The exit code of one command line; whatever goes wrong is said on stderr.

    With `--json` among the arguments an error is a JSON record on stderr.
    """
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = _answer(given)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        return EXIT_OK
    except OSError as error:
        return _report_full(error)
    return code


def _answer(arguments: list[str]) -> int:
    """Runs a command line; errors are reported and become exit codes, those of streams pass."""
    try:
        code = _invoke(arguments)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        return _report_usage(error, as_json="--json" in arguments)
    except MeshwrightError as error:
        return _report(error, as_json="--json" in arguments)
    except OSError:
        raise
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except Exception as error:
        return _report_bug(error)
    return code if isinstance(code, int) else EXIT_OK


def _invoke(arguments: list[str]) -> Any:
    """Runs a command, or answers a shell that asks for completions."""
    instruction = os.environ.get(_COMPLETE)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "meshwright", _COMPLETE, instruction)
    with cli.make_context("meshwright", list(arguments)) as context:
        return cli.invoke(context)


def _report(error: MeshwrightError, *, as_json: bool) -> int:
    """Prints an error, or the findings it carries, to stderr."""
    from meshwright.report.findings import error_lines, error_record
    from meshwright.report.page import show

    if as_json:
        from meshwright.report.machine import to_json

        sys.stderr.write(to_json(error_record(error)))
    else:
        show(error_lines(error), sys.stderr)
    return EXIT_USAGE


def _report_usage(error: click.ClickException, *, as_json: bool) -> int:
    """Prints what click has against the command line to stderr."""
    if not as_json:
        error.show()
        return EXIT_USAGE
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "meshwright"
    wrong = MeshwrightError(error.format_message(), hint=f"{command} --help")
    return _report(wrong, as_json=True)


def _report_full(error: OSError) -> int:
    """Says that output cannot be written, if that at least can be."""
    _discard(sys.stdout)
    if os.environ.get("MESHWRIGHT_DEBUG"):
        raise error
    place = f" {error.filename!r}" if error.filename else ""
    try:
        click.echo(f"error: cannot read or write{place}: {error.strerror or error}", err=True)
        click.echo("hint: free some space, or send the output elsewhere", err=True)
    except OSError:
        _discard(sys.stderr)
    return EXIT_USAGE


def _report_bug(error: Exception) -> int:
    """One line for an error that is ours; the traceback only on request."""
    if os.environ.get("MESHWRIGHT_DEBUG"):
        raise error
    click.echo(f"internal error: {type(error).__name__}: {error}", err=True)
    click.echo("hint: this is a bug; MESHWRIGHT_DEBUG=1 shows where it happened", err=True)
    return EXIT_USAGE


def _discard(stream: TextIO) -> None:
    """Sends what a stream still holds nowhere, so that the exit is silent."""
    with contextlib.suppress(OSError):  # a stream that is no file holds nothing back
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
