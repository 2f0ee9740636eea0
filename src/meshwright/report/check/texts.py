"""The texts of files that findings point into, read once and as the check saw them."""

from __future__ import annotations

import os

from meshwright.base.errors import MeshwrightError
from meshwright.base.locate import read_text


class Texts(dict[str, str]):
    """Text by file name; "" for a file that cannot be read again.

    What is put in beforehand (standard input, a mended text that is not written yet) counts, the
    rest is read on demand. A pipe or device is never opened: it gives its content once, or waits.
    """

    def __missing__(self, file: str) -> str:
        try:
            text = read_text(file) if os.path.isfile(file) else ""
        except MeshwrightError:
            text = ""
        self[file] = text
        return text

    def line(self, file: str, number: int) -> str | None:
        """Line `number` (from 1) without its ending, None where there is none."""
        if not file or number < 1 or not self[file]:
            return None
        lines = self[file].split("\n")
        return lines[number - 1].rstrip("\r") if number <= len(lines) else None
