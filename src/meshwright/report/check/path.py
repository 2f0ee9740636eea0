"""Names of files as services show them: relative to the working folder, with forward slashes."""

from __future__ import annotations

import os


def relative(file: str) -> str:
    """The name seen from the working folder; a file outside it keeps its absolute name."""
    inside = os.path.relpath(file) if os.path.isabs(file) else os.path.normpath(file)
    chosen = os.path.abspath(file) if inside.startswith("..") else inside
    return chosen.replace(os.sep, "/")
