"""Makes a large trace of a real one: its events again and again, later each time.

Time stamps, correlations, External ids, ids of flows and numbers of steps go on from copy to copy;
the layout and every other byte stay. `benchmarks/diagnose.py` measures on what comes out.
"""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SHIFTED = re.compile(
    rb'("ts": |"correlation": |"External id": |"id": |"name": "ProfilerStep#)(\d+)(\.\d+)?'
)
_GAP_US = 1000


def make_trace(source: Path, target: Path, *, copies: int) -> int:
    """Writes a trace of that many copies of a Kineto trace; its size in bytes."""
    raw = source.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    start = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = text.rindex(b"\n  ]", 0, text.rindex(b"}"))
    body = text[start:end]
    if text.find(b'"name": "process_name"') >= 0:  # metadata events are stated once
        body = body[: body.rindex(b"},", 0, body.index(b'"name": "process_name"')) + 1]
    tail = text[start + len(body) :]
    pieces, shifts = _split(body)
    with target.open("wb") as file:
        file.write(text[:start])
        for copy in range(copies):
            file.write(b"," if copy else b"")
            file.write(_shifted(pieces, shifts, copy))
        file.write(tail)
    return target.stat().st_size


def _split(body: bytes) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The text around shifted numbers, and of each its value and step."""
    found = list(_SHIFTED.finditer(body))
    spans: dict[bytes, tuple[int, int]] = {}
    for key in {m[1] for m in found}:
        values = [int(m[2]) for m in found if m[1] == key]
        spans[key] = (min(values), max(values))
    step = {key: high - low + 1 for key, (low, high) in spans.items()}
    step[b'"ts": '] += _GAP_US
    step[b'"External id": '] = step[b'"correlation": '] = step[b'"id": '] = max(
        high for key, (_, high) in spans.items() if b"ts" not in key
    )
    ends = [0, *(m.start(2) for m in found)]
    pieces = [body[a:b] for a, b in zip([0, *(m.end(2) for m in found)], ends[1:], strict=False)]
    pieces.append(body[found[-1].end(2) :])
    return pieces, [(int(m[2]), step[m[1]]) for m in found]


def _shifted(pieces: list[bytes], shifts: list[tuple[int, int]], copy: int) -> bytes:
    result = []
    for piece, (value, step) in zip(pieces, shifts, strict=False):
        result.append(piece)
        result.append(b"%d" % (value + copy * step))
    result.append(pieces[-1])
    return b"".join(result)
