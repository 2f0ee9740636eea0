"""`meshwright convert`: a configuration in another framework's words."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import MeshwrightError
from meshwright.base.finding import EXIT_FINDINGS, EXIT_OK
from meshwright.cli import output
from meshwright.cli.check import variables_of

if TYPE_CHECKING:
    from meshwright.api.converting import Conversion

_EPILOG = """\b
Examples:
  meshwright convert train_70b.sh --to torchtitan -o out/
  meshwright convert plan.toml --to megatron-lm
  meshwright convert ds_config.json --to accelerate --model llama-3-8b --gpus H100:8 --nodes 2
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option("--to", required=True, metavar="NAME", help="A framework, see `show frameworks`.")
@click.option("--to-version", default="", metavar="V", help="Its version, by default the newest.")
@click.option("--model", metavar="NAME|FILE", help="A preset or config.json, where none is stated.")
@click.option("--gpus", metavar="NAME:COUNT", help="GPU type and GPUs per node, as H100:8.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes.")
@click.option("--framework", default="", metavar="NAME", help="Read as of this framework.")
@click.option("--framework-version", "version", default="", metavar="V", help="Its version.")
@click.option("--set", "sets", multiple=True, metavar="VARIABLE=VALUE", help="See `show names`.")
@click.option("-o", "--output", "target", metavar="FOLDER|FILE", help="Write the files there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def convert(paths: tuple[str, ...], *, target: str | None, as_json: bool, **asked: Any) -> int:
    """Write the configuration in FILE... in the words of another framework.

    FILE may be a plan.toml. Several files are read as the parts of one configuration. What cannot
    be carried over, and the memory and step time before and after, go to stderr; exits with 1 when
    the target cannot run such a plan.
    """
    from meshwright import api

    asked["sets"] = variables_of(asked["sets"])
    conversion = api.convert_files(list(paths), **asked)
    written = _write(conversion, target) if target else ()
    conversion = _started_where_written(conversion, written)
    if as_json:
        from meshwright.report.conversion import conversion_record

        output.json(conversion_record(conversion, written=written))
    else:
        _print(conversion, written)
    return EXIT_FINDINGS if conversion.refused else EXIT_OK


def _started_where_written(conversion: Conversion, written: tuple[str, ...]) -> Conversion:
    """The conversion with a command that names the file as it was written.

    Files that name each other are started from their folder.
    """
    from dataclasses import replace

    if not written or not conversion.command:
        return conversion
    if len(written) > 1:
        folder = shlex.quote(os.path.dirname(written[0]) or ".")
        return replace(conversion, command=f"cd {folder} && {conversion.command}")
    name = re.compile(rf"(?<!\S){re.escape(next(iter(conversion.files)))}(?![^\s)])")
    path = shlex.quote(written[0])
    return replace(conversion, command=name.sub(lambda _: path, conversion.command))


def _print(conversion: Conversion, written: tuple[str, ...]) -> None:
    """Files on stdout unless they were written, everything else on stderr."""
    from meshwright.report.conversion import conversion_lines

    several = len(conversion.files) > 1
    for name, text in conversion.files.items() if not written else ():
        sys.stdout.write(f"==> {name} <==\n{text}" if several else text)
    sys.stdout.flush()
    output.remark(*conversion_lines(conversion, written=written))


def _write(conversion: Conversion, target: str) -> tuple[str, ...]:
    """Writes the files into a folder, or the only one under a name; returns their paths."""
    files = conversion.files
    if not files:
        return ()
    if not (target.endswith(os.sep) or os.path.isdir(target)) and len(files) == 1:
        paths = {target: next(iter(files.values()))}
    else:
        _make_folder(target)
        paths = {os.path.join(target, name): text for name, text in files.items()}
    for path in paths:
        output.check_writable(path)
    for path, text in paths.items():
        output.write_file(path, text)
    return tuple(paths)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise MeshwrightError(
            f"cannot make the folder {path!r}: {error.strerror or error}", hint="name another"
        ) from None
