"""Files that builds wrote, which folders and globs do not take for input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.data.shards.names import DOCUMENTS, MANIFEST, TOKENIZER, WORK, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_RECORD = ".build.json"


def without_built(
    paths: Iterable[str], *, named: str, output: str, tell: Callable[[Finding], None]
) -> list[str]:
    """The paths without those that a build wrote; how many are left out goes to `tell`.

    `named` is the folder that was asked for by its own name: cleaned text in it is wanted, unless
    it is `output`, the folder of this very build ("" for none).
    """
    kept: list[str] = []
    left: list[str] = []
    known: dict[str, bool] = {}
    for path in paths:
        folder, name = _place(path)
        if not (is_ours(name) or name.startswith(f"{TOKENIZER}/")):
            kept.append(path)
            continue
        if folder not in known:
            known[folder] = _is_same(folder, output) or _is_built(folder)
        is_text = name.startswith("text-") and _is_same(folder, named)
        wanted = not known[folder] or (is_text and not _is_same(folder, output))
        (kept if wanted else left).append(path)
    if left:
        tell(
            Finding(
                message=f"{len(left):,} files that a build wrote are left out, as {left[0]}",
                severity=Severity.INFO,
                file=named or os.path.dirname(left[0]),
                reason="output is no input",
                hint="name such a file by itself to read it",
            )
        )
    return kept


def _place(path: str) -> tuple[str, str]:
    """The folder that a build would have written a file into, and the name it would have there."""
    folder, name = os.path.split(path)
    above, last = os.path.split(folder)
    return (above, f"{TOKENIZER}/{name}") if last == TOKENIZER else (folder, name)


def _is_built(folder: str) -> bool:
    """Whether a build wrote there, or is about to."""
    there = [os.path.lexists(os.path.join(folder, n)) for n in (MANIFEST, DOCUMENTS, _RECORD, WORK)]
    return (there[0] and there[1]) or there[2] or there[3]


def _is_same(folder: str, other: str) -> bool:
    """Whether two paths lead to one folder; "" is none where `other` is."""
    return bool(other) and os.path.realpath(folder) == os.path.realpath(other)
