"""Lines of debug logs as NCCL and RCCL write them, out of files that hold much else.

A line may stand behind whatever a launcher puts before it ("[rank0]:", "(Worker pid=9)",
"[1,0]<stdout>:", a time), has "host:pid:tid [device] NCCL INFO text" or "host:pid:tid [device]
file:line NCCL WARN text", and may be torn: processes that share a file write into each other's
lines, so that one line may hold the heads of several.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from meshwright.diagnose.trace.source import text_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from meshwright.diagnose.trace.columns import Left

LONGEST = 16384  # bytes of a line that are read; NCCL's own are up to some thousand
HEAD = re.compile(
    r"(?<![\w.])(?:([A-Za-z0-9][\w.\-]{0,255})>?:)?(\d{1,10}):(\d{1,10}) \[(-?\d{1,5})\] "
)
LEVEL = re.compile(r"(?:^|\s)NCCL (INFO|WARN|TRACE|ABORT|VERSION|CALL)(?: |$)")
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Said(NamedTuple):
    """One message; `host` is "" and numbers are -1 where the line does not say."""

    level: str
    text: str
    host: str = ""
    pid: int = -1
    tid: int = -1
    device: int = -1

    @property
    def process(self) -> tuple[str, int, int]:
        """Who speaks: one GPU of one process."""
        return self.host, self.pid, self.device


def lines_of(path: str | Path, *, left: list[Left], cut: list[int]) -> Iterator[str]:
    """Lines of a file; of longer ones the first 16 KiB, their number added to `cut`."""
    rest, skipping = b"", False
    for piece in text_pieces(path, told=left):
        *lines, rest = (rest + piece).split(b"\n")
        if skipping and lines:
            skipping, lines = False, lines[1:]
        for line in lines:
            yield _text(line, cut)
        if len(rest) > LONGEST:
            if not skipping:
                yield _text(rest, cut)
            skipping, rest = True, b""
    if rest and not skipping:
        yield _text(rest, cut)


def said_in(line: str) -> list[Said]:
    """The messages in a line: none, one, or several where lines were torn."""
    if "NCCL" not in line:
        return []
    head = HEAD.search(line)
    if head is None:
        return _headless(line)
    if line.count("NCCL ", head.end()) < 2:  # the usual line: it is not torn
        said = _said(head, line[head.end() :])
        return [said] if said is not None else []
    heads = list(HEAD.finditer(line))
    ends = [*(h.start() for h in heads[1:]), len(line)]
    found = [_said(h, line[h.end() : end]) for h, end in zip(heads, ends, strict=True)]
    return [said for said in found if said is not None]


def _said(head: re.Match[str], rest: str) -> Said | None:
    level = LEVEL.search(rest)
    if level is None:
        return None
    host, pid, tid, device = head.groups()
    text = rest[level.end() :].strip()
    return Said(level[1], text, host or "", int(pid), int(tid), int(device))


def _headless(line: str) -> list[Said]:
    level = LEVEL.search(line)
    return [Said(level[1], line[level.end() :].strip())] if level else []


def _text(line: bytes, cut: list[int]) -> str:
    if len(line) > LONGEST:
        cut.append(len(line))
        line = line[:LONGEST]
    text = line.decode("utf-8", "replace")
    return CONTROL.sub("", text) if not text.isprintable() else text
