"""Digests of the files that settings name, so that a changed one makes again what read it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.data.settings import Source
from meshwright.data.source.opening import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.data.settings import Build

_CHUNK_BYTES = 1 << 20


def digests_of(build: Build) -> tuple[tuple[str, str], ...]:
    """("tokenizer", digest of it), and for each file of the test sets its path and digest."""
    return tuple(_digests(build))


def _digests(build: Build) -> Iterator[tuple[str, str]]:
    if build.tokenizer is not None:
        from meshwright.data.tokens.files import files_read

        yield "tokenizer", _digest(files_read(Path(build.tokenizer.file).expanduser()))
    if build.decontaminate is not None:
        from meshwright.data.source.listing import list_inputs

        for found in list_inputs((Source(files=build.decontaminate.files),)):
            is_local = not is_url(found.path)
            yield found.path, _digest([Path(found.path)]) if is_local else found.stamp


def _digest(paths: Sequence[Path]) -> str:
    """Of the names and contents of files; InvalidInput when one cannot be read."""
    found = hashlib.blake2b(digest_size=16)
    for path in paths:
        found.update(path.name.encode() + b"\0")
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    found.update(chunk)
        except OSError as error:
            raise _unreadable(path, error) from None
    return found.hexdigest()


def _unreadable(path: Path, error: OSError) -> InvalidInput:
    reason = error.strerror or str(error)
    return InvalidInput(
        [Finding(message=f"cannot read it: {reason}", file=str(path), hint="check the path")]
    )
