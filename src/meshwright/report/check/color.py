"""Colors of a report on a terminal: severities, carets, the frame. NO_COLOR turns them off."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshwright.base.pattern import pattern
from meshwright.report.page import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

_RESET = "\x1b[0m"
_BLUE = "\x1b[1;34m"
_CYAN = "\x1b[1;36m"
_SEVERITIES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "info": _BLUE}
_HEAD = pattern(r"(error|warning|info)(?:\[\w+\])?:")
_FRAME = pattern(r" *\d* *(?:\||-->|:::|=(?= [a-z]+:)) ?")


def is_colored(stream: TextIO) -> bool:
    """Whether a stream shows colors: FORCE_COLOR and NO_COLOR decide, else it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)


def colored(lines: Iterable[str]) -> list[str]:
    """The lines of a report in colors; carets take that of their finding's severity."""
    current, painted = "", []
    for line in lines:
        if head := _HEAD.match(line):
            current = _SEVERITIES[head[1]]
            line = f"{current}{head[0]}{_RESET}{line[head.end() :]}"
        elif frame := _FRAME.match(line):
            line = _framed(line, frame.end(), current)
        painted.append(line)
    return painted


def _framed(line: str, end: int, current: str) -> str:
    """A line of a frame: the margin blue, carets and their text in the finding's color."""
    margin, rest = line[:end], line[end:]
    if margin.strip() == "|" and rest.strip()[:1] in ("^", "|"):
        rest = f"{current}{rest}{_RESET}"
    elif margin.strip() == "=" and rest.startswith("help:"):
        rest = f"{_CYAN}help:{_RESET}{rest[5:]}"
    return f"{_BLUE}{margin}{_RESET}{rest}"
