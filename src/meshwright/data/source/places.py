"""From names to files: paths, globs, folders and URLs, each in an order that never varies."""

from __future__ import annotations

import glob
import os
import stat
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.base.names import nearest, question
from meshwright.base.noun import dataclass
from meshwright.data.source.built import without_built
from meshwright.data.source.kinds import kind_by_name, unread_ending
from meshwright.data.source.opening import file_stamp, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_SHOWN = 5  # names in one finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A file: `identity` is the same for two names of one file."""

    path: str
    bytes: int
    stamp: str
    identity: tuple[object, ...]


def files_of(name: str, tell: Callable[[Finding], None], *, output: str = "") -> list[Found]:
    """The files that a path, glob or URL names; what is wrong goes to `tell`.

    Folders and globs leave out what builds wrote, above all the one into `output`.
    """
    if name.startswith("file://"):
        name = name.removeprefix("file://")
    if is_url(name):
        from meshwright.data.source.urls import url_files

        return url_files(name, tell)
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return _stated(_in_folder(path, tell, output), tell)
    if os.path.lexists(path):
        return _stated([path], tell)
    if glob.has_magic(path):
        return _stated(_matching(path, tell, output), tell)
    folder = _existing(os.path.dirname(path) or ".")
    tell(not_there(path, os.path.basename(path), names=_names_in(folder), folder=folder))
    return []


def _matching(pattern: str, tell: Callable[[Finding], None], output: str) -> list[str]:
    """The files that a glob matches; folders that it matches are not gone into."""
    matches = sorted({p for p in glob.iglob(pattern, recursive=True) if not os.path.isdir(p)})
    _tell_closed(pattern, tell)
    if not matches:
        folder = _existing(os.path.dirname(pattern.partition("*")[0]) or ".")
        tell(no_match(pattern, _names_in(folder), folder))
        return []
    named = os.path.dirname(pattern)
    named = "" if glob.has_magic(named) else named or "."
    kept = without_built(matches, named=named, output=output, tell=tell)
    if not kept:
        tell(Finding(message="matches nothing but what a build wrote", file=pattern))
    return kept


def no_match(pattern: str, names: Iterable[str], folder: str) -> Finding:
    """Nothing matches a glob; `names` are what there is instead."""
    wanted = pattern.rpartition("/")[2].replace("*", "").replace("?", "")
    hint = _nearby(wanted, names, folder)
    return Finding(
        message="no file matches this pattern", file=pattern, reason="no match", hint=hint
    )


def not_there(path: str, wanted: str, *, names: Iterable[str], folder: str) -> Finding:
    """No such file; `names` are what its folder holds."""
    hint = _nearby(wanted, names, folder)
    return Finding(message="there is no such file", file=path, reason="not found", hint=hint)


def _nearby(wanted: str, names: Iterable[str], folder: str) -> str:
    """Which names to try instead."""
    known = sorted(names)
    near = nearest(wanted, known[:10_000]) if wanted else ()
    if near:
        return question(os.path.join(folder, name) for name in near)
    if not known:
        return f"{folder or 'its folder'} is empty or not there"
    more = ", ..." if len(known) > _SHOWN else ""
    return f"in {folder} there are {', '.join(known[:_SHOWN])}{more}"


def _existing(folder: str) -> str:
    """The nearest folder above that is there."""
    while folder and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder or "."


def _names_in(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return []


def _in_folder(folder: str, tell: Callable[[Finding], None], output: str) -> list[str]:
    """Every file of a known kind in a folder and those below, but hidden ones."""
    found = sorted(_walked(folder, set(), tell))
    paths = without_built(found, named=folder, output=output, tell=tell)
    return chosen(folder, paths, tell)


def chosen(folder: str, paths: list[str], tell: Callable[[Finding], None]) -> list[str]:
    """Those of a folder's files whose names are of a known kind; the others are told."""
    known = [path for path in paths if kind_by_name(path).format]
    packed = [path for path in paths if unread_ending(path)]
    others = len(paths) - len(known) - len(packed)
    if packed:
        tell(
            Finding(
                message=f"{len(packed):,} files are left out, for they must be unpacked first",
                severity=Severity.WARNING,
                file=folder,
                value=", ".join(packed[:_SHOWN]),
                reason="a compression or archive that is not read",
            )
        )
    if not known:
        named = ", ".join(os.path.basename(path) for path in paths[:_SHOWN])
        hint = f"name files by themselves to read them whatever they are called: {named}"
        tell(
            Finding(
                message="a folder without any jsonl, parquet or text file",
                file=folder,
                reason="no file of a known kind",
                hint=hint if paths else "the folder is empty",
            )
        )
    elif others:
        tell(
            Finding(
                message=f"{others:,} files of other kinds are left out",
                severity=Severity.INFO,
                file=folder,
            )
        )
    return known


def _walked(
    folder: str, seen: set[tuple[int, int]], tell: Callable[[Finding], None]
) -> Iterator[str]:
    """The files below a folder; one that links lead to twice is gone into once."""
    try:
        state = os.stat(folder)
        if (state.st_dev, state.st_ino) in seen:
            return
        seen.add((state.st_dev, state.st_ino))
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        tell(_closed(folder, error))
        return
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            yield from _walked(path, seen, tell)
        else:
            yield path


def _closed(folder: str, error: OSError) -> Finding:
    """A folder that cannot be looked into: what is in it would be missed."""
    return Finding(
        message=f"this folder cannot be read: {error.strerror}",
        file=folder,
        reason="what is in it would be missed",
        hint="see its permissions, or name what to read without it",
    )


def _tell_closed(pattern: str, tell: Callable[[Finding], None]) -> None:
    """Tells of folders that a glob goes through and that cannot be read."""
    parts = os.path.dirname(pattern).split(os.sep)
    fixed = next((n for n, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    base = os.sep.join(parts[:fixed]) or (os.sep if pattern.startswith(os.sep) else ".")
    deepest = len(parts) - fixed if "**" not in parts else None

    def told(error: OSError) -> None:
        if isinstance(error, PermissionError):  # what is not there is told otherwise
            tell(_closed(str(error.filename), error))

    for folder, below, _ in os.walk(base, onerror=told):
        depth = 0 if folder == base else os.path.relpath(folder, base).count(os.sep) + 1
        below[:] = [name for name in below if not name.startswith(".") and depth != deepest]


def _stated(paths: Iterable[str], tell: Callable[[Finding], None]) -> list[Found]:
    """Size, time and identity of local files."""
    found = []
    for path in paths:
        try:
            path.encode()
            state = os.stat(path)
        except UnicodeEncodeError:
            tell(_unprintable(path))
        except OSError as error:
            tell(Finding(message=f"cannot be read: {error.strerror}", file=path))
        else:
            if not stat.S_ISREG(state.st_mode):
                tell(_not_regular(path))
                continue
            found.append(
                Found(
                    path=path,
                    bytes=state.st_size,
                    stamp=file_stamp(state),
                    identity=(state.st_dev, state.st_ino),
                )
            )
    return found


def _not_regular(path: str) -> Finding:
    hint = "pipe it in instead: COMMAND | meshwright data build - ..."
    return Finding(message="is a pipe or device, which can be read only once", file=path, hint=hint)


def _unprintable(path: str) -> Finding:
    shown = path.encode(errors="replace").decode()
    return Finding(message="its name is not valid UTF-8", file=shown, hint="rename the file")
