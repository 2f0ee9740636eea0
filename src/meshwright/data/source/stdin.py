"""Standard input, kept in a file so that it can be cut into units and read again.

A pipe can be read once only, but a build reads its input in several processes and must go on after
an interruption. So all of it is first written to `folder/stdin`: under another name while it
comes in, so that a file of the final name is always whole. What is piped in again for a second run
is compared by its hash (it is in the stamp, which the keys of units hold): the same bytes go on
where the first run stopped, other bytes take the place of the old. Without anything piped in, on a
terminal or from /dev/null, the file of the earlier run is used. That the command in front of the
pipe failed cannot be seen from here, unless what it sent is compressed: see your shell's pipefail.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.data.source.damage import unreadable
from meshwright.data.source.places import Found
from meshwright.data.work.store import writer

if TYPE_CHECKING:
    from pathlib import Path

STDIN = "-"
_CHUNK_BYTES = 1 << 20


def kept_stdin(folder: Path | None, stream: BinaryIO | None = None) -> Found:
    """The file that standard input was written to; InvalidInput where there is no input at all."""
    if folder is None:
        raise _refusal("standard input cannot be read here", "name a file instead of -")
    stream = stream or getattr(sys.stdin, "buffer", None)
    final = folder / "stdin"
    try:
        if stream is not None and not stream.isatty():
            _keep(stream, final)
        return _found(final)
    except FileNotFoundError:
        hint = "pipe text in: zstd -dc FILE | meshwright data build - ..."
        raise _refusal("nothing is piped in", hint) from None
    except OSError as error:
        raise unreadable(str(final), error) from None


def _keep(stream: BinaryIO, final: Path) -> None:
    """Writes what comes in; nothing changes when nothing does."""
    first = stream.read(_CHUNK_BYTES)
    if not first and final.exists():
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    for stale in final.parent.glob(f"{final.name}.*.part"):
        stale.unlink(missing_ok=True)
    part = final.with_name(f"{final.name}.{writer()}.part")
    try:
        with part.open("wb") as file:
            while first:
                file.write(first)
                first = stream.read(_CHUNK_BYTES)
            file.flush()
            os.fsync(file.fileno())
        part.rename(final)
    finally:
        part.unlink(missing_ok=True)


def _found(final: Path) -> Found:
    digest = blake2b(digest_size=16)
    with final.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
        size = file.tell()
    return Found(path=str(final), bytes=size, stamp=digest.hexdigest(), identity=(STDIN,))


def _refusal(message: str, hint: str) -> InvalidInput:
    return InvalidInput([Finding(message=message, file=STDIN, hint=hint)])
