"""Console blocks in Markdown: each command is run again and its output put in place of the old.

A block is fenced with ```console; a line that starts with "$ meshwright" is a command, the lines up
to the next command its output. The commands of one page share one folder, in the order of the page;
a fenced block below the remark <!-- file: NAME --> is put there as a file first, and by the remark
<!-- copy: PATH --> a file of this repository is, under its own name, or a folder, under its path.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

_BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
_COPY = re.compile(r"^<!-- copy: ([\w./-]+) -->$", re.MULTILINE)
_ROOT = Path(__file__).resolve().parent.parent
_FILE = re.compile(r"^<!-- file: ([\w.-]+) -->\n+```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def rerun(text: str) -> str:
    """The page with every console block as it would come out now."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            _write_files(text)
            return _BLOCK.sub(lambda match: _block(match.group()), text)
        finally:
            os.chdir(before)


def commands(text: str) -> list[str]:
    """Every command in the console blocks of a page."""
    blocks = "\n".join(match.group() for match in _BLOCK.finditer(text))
    return [command for command, _ in _split(blocks)]


def _write_files(text: str) -> None:
    """Writes the files that a page shows into the working folder."""
    for name in _COPY.findall(text):
        if (_ROOT / name).is_dir():
            shutil.copytree(_ROOT / name, name)
        else:
            shutil.copy2(_ROOT / name, Path(name).name)
    for name, content in _FILE.findall(text):
        with open(name, "w", encoding="utf-8") as stream:
            stream.write(content)


def _block(block: str) -> str:
    return "\n".join(f"$ {command}\n{_output(command)}" for command, _ in _split(block))


def _split(block: str) -> list[tuple[str, str]]:
    """Pairs of a command, with its continuation lines, and the output that stands below it."""
    parts = re.split(r"^\$ ((?:.*\\\n)*.*)\n", block, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _output(command: str) -> str:
    """What a meshwright command prints, stdout and stderr together."""
    from meshwright.cli.main import run

    words = shlex.split(command.replace("\\\n", " "))
    if words[0] != "meshwright":
        raise ValueError(f"a console block runs {words[0]!r}, which is not meshwright")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        run(words[1:])
    return out.getvalue()
