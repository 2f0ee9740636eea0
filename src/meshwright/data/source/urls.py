"""Files named by fsspec URLs: s3://, gs://, hf://, https://, memory:// and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, cast

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.names import did_you_mean
from meshwright.data.needs import need
from meshwright.data.source.places import Found, chosen, no_match

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CHANGES = ("ETag", "etag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified")


def open_url(url: str) -> BinaryIO:
    """The file at a URL, read ahead in blocks; OSError where it cannot be."""
    system, path = system_of(url)
    try:
        return cast("BinaryIO", system.open(path, "rb"))
    except (ValueError, RuntimeError, ImportError) as error:
        raise OSError(str(error)) from None


def system_of(url: str) -> tuple[Any, str]:
    """The file system that a URL belongs to, and the path there."""
    fsspec = need("fsspec", f"reading {url.partition('://')[0]}:// URLs")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        raise InvalidInput([_refused(fsspec, url, error)]) from None
    return system, path


def _refused(fsspec: Any, url: str, error: Exception) -> Finding:
    """Why fsspec does not know a URL: no such protocol, or its library is missing."""
    protocol = url.partition("://")[0].rpartition("::")[2]
    known = fsspec.available_protocols()
    if isinstance(error, ImportError):
        hint = f"{error}".split("\n", 1)[0]
    else:
        hint = "" if protocol in known else did_you_mean(protocol, known, otherwise="known are")
    return Finding(
        message=f"cannot be opened: {error}", file=url, value=protocol, reason=str(error), hint=hint
    )


def stamp_of(facts: Mapping[str, Any]) -> str:
    """What changes when the content does, from what a file system tells of a file."""
    known = [str(facts[name]) for name in _CHANGES if facts.get(name)]
    return "-".join([str(facts.get("size", "")), *known[:2]])


def url_files(url: str, tell: Callable[[Finding], None]) -> list[Found]:
    """The files that a URL names: a file, a folder or a glob."""
    system, path = system_of(url)
    try:
        if _has_glob(path) and not system.exists(path):
            return _matching(system, url, path, tell)
        facts = system.info(path)
        if facts.get("type") == "directory":
            inside = system.find(path, detail=True)
            names = chosen(url, sorted(inside), tell)
            return _found(system, {name: inside[name] for name in names}, tell)
        return _found(system, {path: facts}, tell, url=url)
    except FileNotFoundError:
        tell(Finding(message="there is no such file", file=url, reason="not found"))
    except Exception as error:  # each protocol's library has errors of its own
        reason = str(error).split("\n", 1)[0] or type(error).__name__
        tell(Finding(message=f"cannot be read: {reason}", file=url, reason=reason))
    return []


def _has_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _matching(system: Any, url: str, path: str, tell: Callable[[Finding], None]) -> list[Found]:
    matches = {
        name: facts
        for name, facts in system.glob(path, detail=True).items()
        if facts.get("type") != "directory"
    }
    if not matches:
        folder = path.partition("*")[0].rpartition("/")[0]
        try:
            there = [name.rpartition("/")[2] for name in system.ls(folder, detail=False)]
        except (OSError, ValueError):
            there = []
        tell(no_match(url, there, folder or "/"))
    return _found(system, matches, tell)


def _found(
    system: Any,
    files: Mapping[str, Mapping[str, Any]],
    tell: Callable[[Finding], None],
    *,
    url: str = "",
) -> list[Found]:
    """Files of a listing, sorted by name; `url` where there is one, as it was given."""
    found = []
    for name in sorted(files):
        full = url or str(system.unstrip_protocol(name))
        size = files[name].get("size")
        if not isinstance(size, int):
            hint = "download it first, or name a server that does"
            tell(Finding(message="its server does not tell its size", file=full, hint=hint))
            continue
        found.append(Found(path=full, bytes=size, stamp=stamp_of(files[name]), identity=(full,)))
    return found
