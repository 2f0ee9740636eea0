"""Finished units of work on disk: a folder each, complete or not there at all.

A unit is written to a folder of another name, flushed to the disk and renamed; a process that dies
at any moment leaves either the whole unit or nothing that counts. `unit.json` holds the key of what
the unit was made from, and what its files are: a unit whose key no longer fits, or of which a byte
has changed since, is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.data.shards.hashed import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_RECORD = "unit.json"
_ATTEMPTS = 3  # at putting a unit in its place


@dataclass(frozen=True, slots=True)
class Store:
    """Units below `root`, as root/stage/00012/."""

    root: Path

    def folder(self, stage: str, number: int) -> Path:
        """Where a unit lies once it is done."""
        return self.root / stage / f"{number:05d}"

    def record(self, stage: str, number: int) -> Mapping[str, Any] | None:
        """What the unit said of itself, its key included; None when it is not done."""
        try:
            with (self.folder(stage, number) / _RECORD).open(encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def is_done(self, stage: str, number: int, *, key: str) -> bool:
        """Whether the unit is there and was made from what `key` stands for."""
        record = self.record(stage, number)
        return record is not None and record.get("key") == key

    def is_whole(self, stage: str, number: int) -> bool:
        """Whether every file of a unit that is there is as it was written; reads all of them."""
        record = self.record(stage, number)
        try:
            return record is not None and record.get("files") == contents(
                self.folder(stage, number)
            )
        except OSError:
            return False

    @contextlib.contextmanager
    def writing(self, stage: str, number: int, *, key: str) -> Iterator[Draft]:
        """A new unit, which takes its place when the block ends without an exception.

        Where another process has put the same unit there meanwhile, that one stays.
        """
        final = self.folder(stage, number)
        part = final.with_name(f"{final.name}.{writer()}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        is_again = self.is_done(stage, number, key=key)
        draft = Draft(part, {"key": key})
        try:
            yield draft
            draft.facts["files"] = contents(part)
            draft.write_text(_RECORD, json.dumps(draft.facts, indent=1))
            flush(part)
            self._place(part, stage, number, kept_key=None if is_again else key)
            flush(final.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _place(self, part: Path, stage: str, number: int, *, kept_key: str | None) -> None:
        """Puts a whole unit where it belongs, in the place of one of any key but `kept_key`."""
        final = self.folder(stage, number)
        for attempt in range(_ATTEMPTS):
            if kept_key is not None and self.is_done(stage, number, key=kept_key):
                return
            shutil.rmtree(final, ignore_errors=True)
            try:
                part.rename(final)
            except OSError:  # another was quicker between the two lines
                if attempt == _ATTEMPTS - 1 or not final.exists():
                    raise
            else:
                return

    def column(self, stage: str, number: int, name: str) -> NDArray[Any]:
        """A column of a finished unit, mapped into memory; an empty one is read.

        MeshwrightError where it is not as it was written.
        """
        path = self.folder(stage, number) / f"{name}.npy"
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        except (ValueError, EOFError):  # nothing can be mapped of an empty file
            return _read(path)


@dataclass(frozen=True, slots=True)
class Draft:
    """A unit that is being written; `facts` go into its record."""

    folder: Path
    facts: dict[str, Any]

    def write_column(self, name: str, values: NDArray[Any]) -> None:
        """One array, as name.npy."""
        with (self.folder / f"{name}.npy").open("wb") as file:
            np.save(file, values, allow_pickle=False)
            _sync(file)

    def write_text(self, name: str, text: str) -> None:
        """One small text file."""
        with (self.folder / name).open("w", encoding="utf-8") as file:
            file.write(text)
            _sync(file)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """A binary file to stream into, flushed to the disk at the end."""
        with (self.folder / name).open("wb") as file:
            yield file
            _sync(file)


def contents(folder: Path) -> dict[str, str]:
    """The hash (xxh3_128) of each file of a unit but its record."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    names.pop(_RECORD, None)
    return {name: digest_of(path).xxh3_128 for name, path in names.items()}


def writer() -> str:
    """What tells the files that this process writes from those of any other, on any machine."""
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname())
    return f"{host}.{os.getpid()}"


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def flush(folder: Path) -> None:
    """Makes the names in a folder as lasting as their contents."""
    with contextlib.suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read(path: Path) -> NDArray[Any]:
    """An array from its file, not mapped."""
    try:
        return np.load(path, allow_pickle=False)  # type: ignore[no-any-return]
    except (ValueError, EOFError) as error:
        folder = str(path.parent)
        raise MeshwrightError(
            f"finished work was damaged: {str(path)!r} cannot be read ({error})",
            hint=f"remove {folder!r} and run the same command again, or add --fresh",
        ) from None
