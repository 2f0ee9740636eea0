"""Where output goes: pages and JSON to stdout, remarks to stderr."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.report.page import show

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.report.page import Block


def page(blocks: Iterable[Block]) -> None:
    """Prints a page to stdout."""
    show(blocks, sys.stdout)


def remark(*lines: str) -> None:
    """Prints lines to stderr."""
    show(lines, sys.stderr)


def json(record: Mapping[str, Any]) -> None:
    """Prints a record to stdout as JSON."""
    from meshwright.report.machine import to_json

    sys.stdout.write(to_json(record))


def check_writable(path: str) -> None:
    """MeshwrightError when no file can be written at `path`; nothing is written yet."""
    target = Path(path)
    try:
        if not path or "\0" in path or target.is_dir():
            raise _unwritable(path, "it names no file", hint="name one, as plan.toml")
        if not target.parent.is_dir():
            raise _unwritable(path, "its folder does not exist", hint=f"mkdir -p {target.parent}")
    except (OSError, ValueError) as error:
        raise _unwritable(path, getattr(error, "strerror", None) or str(error)) from None
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise _unwritable(path, "permission denied")


def write_file(path: str, text: str) -> None:
    """Writes a text file, whole or not at all; MeshwrightError when it cannot be written."""
    target = Path(path).resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        if target.exists() and not target.is_file():  # a device or a pipe
            target.write_text(text, encoding="utf-8")
            return
        part.write_text(text, encoding="utf-8")
        if target.exists():  # a script stays executable
            part.chmod(target.stat().st_mode)
        part.replace(target)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None
    finally:
        part.unlink(missing_ok=True)


def _unwritable(path: str, reason: str, *, hint: str = "name another file") -> MeshwrightError:
    return MeshwrightError(f"cannot write {path!r}: {reason}", hint=hint)
