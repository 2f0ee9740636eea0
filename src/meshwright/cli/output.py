"""Where output goes: pages and JSON to stdout, remarks to stderr."""

from __future__ import annotations

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


def write_file(path: str, text: str) -> None:
    """Writes a text file; MeshwrightError when it cannot be written."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise MeshwrightError(
            f"cannot write {path!r}: {error.strerror}", hint="name a folder that exists"
        ) from None
