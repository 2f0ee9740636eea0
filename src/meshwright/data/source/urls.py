"""Files named by fsspec URLs: s3://, gs://, hf://, https://, memory:// and others."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.names import did_you_mean
from meshwright.data.needs import need
from meshwright.data.source.places import Found, chosen, no_match, not_there

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CHANGES = ("ETag", "etag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified")


def open_url(url: str) -> BinaryIO:
    """The file at a URL, read ahead in blocks; every error of its library becomes an OSError."""
    system, path = system_of(url)
    try:
        return cast("BinaryIO", _Remote(system.open(path, "rb"), system))
    except Exception as error:  # each protocol's library has errors of its own
        raise OSError(_first_line(error)) from None


class _Remote(io.RawIOBase):
    """A file of fsspec whose errors are OSErrors."""

    def __init__(self, file: Any, system: Any) -> None:
        self._file = file
        self._system = system  # one for archives closes them when nobody holds it

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(_tried(self._file.seek, offset, whence))

    def read(self, count: int = -1) -> bytes:
        return bytes(_tried(self._file.read, count))

    def close(self) -> None:
        super().close()
        self._file.close()


def _tried(call: Callable[..., Any], *arguments: int) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise OSError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    """What an error says; its type too where that is an error of code rather than of a system."""
    said = str(error).split("\n", 1)[0]
    kind = type(error).__name__
    if isinstance(error, TypeError | AttributeError | LookupError) and said:
        return f"{kind}: {said}"
    return said or kind


def system_of(url: str) -> tuple[Any, str]:
    """The file system that a URL belongs to, and the path there."""
    fsspec = need("fsspec", f"reading {url.partition('://')[0]}:// URLs")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except Exception as error:  # each protocol's library has errors of its own
        raise InvalidInput([_refused(fsspec, url, error)]) from None
    return system, str(path)


def _refused(fsspec: Any, url: str, error: Exception) -> Finding:
    """Why fsspec does not know a URL: no such protocol, or its library is missing."""
    protocol = url.partition("://")[0].rpartition("::")[2]
    known = fsspec.available_protocols()
    reason = _first_line(error)
    if isinstance(error, ImportError):
        hint = reason
    else:
        hint = "" if protocol in known else did_you_mean(protocol, known, otherwise="known are")
    message = f"cannot be opened as {protocol}: {reason}"
    hint = hint or "see the documentation of fsspec for what such a URL must hold"
    return Finding(message=message, file=url, value=protocol, reason=reason, hint=hint)


def stamp_of(facts: Mapping[str, Any]) -> str:
    """What changes when the content does, from what a file system tells of a file."""
    known = [str(facts[name]) for name in _CHANGES if facts.get(name)]
    return "-".join([str(facts.get("size", "")), *known[:2]])


def url_files(url: str, tell: Callable[[Finding], None]) -> list[Found]:
    """The files that a URL names: a file, a folder or a glob."""
    system, path = system_of(url)
    try:
        if _has_glob(path) and not system.exists(path):
            return _matching(system, url, path=path, tell=tell)
        facts = system.info(path)
        if facts.get("type") == "directory":
            inside = system.find(path, detail=True)
            names = chosen(url, sorted(inside), tell)
            return _found({name: inside[name] for name in names}, url, tell)
        return _found({path: facts}, url, tell, single=True)
    except FileNotFoundError:
        folder, _, wanted = path.rpartition("/")
        tell(not_there(url, wanted, names=_names_in(system, folder), folder=folder))
    except Exception as error:  # each protocol's library has errors of its own
        reason = _first_line(error)
        tell(Finding(message=f"cannot be read: {reason}", file=url, reason=reason))
    return []


def _has_glob(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _matching(system: Any, url: str, *, path: str, tell: Callable[[Finding], None]) -> list[Found]:
    matches = {
        name: facts
        for name, facts in system.glob(path, detail=True).items()
        if facts.get("type") != "directory"
    }
    if not matches:
        folder = path.partition("*")[0].rpartition("/")[0]
        tell(no_match(url, _names_in(system, folder), folder))
    return _found(matches, url, tell)


def _names_in(system: Any, folder: str) -> list[str]:
    """What else there is, for a hint; nothing where that cannot be told."""
    try:
        return [name.rpartition("/")[2] for name in system.ls(folder, detail=False)]
    except Exception:  # each protocol's library has errors of its own
        return []


def _found(
    files: Mapping[str, Mapping[str, Any]],
    url: str,
    tell: Callable[[Finding], None],
    *,
    single: bool = False,
) -> list[Found]:
    """Files of a listing, sorted by name; a single one has the URL that was given."""
    found = []
    for name in sorted(files):
        full = _full(url, name)
        size = files[name].get("size")
        if not isinstance(size, int):
            hint = "download it first, or name a server that does"
            tell(Finding(message="its server does not tell its size", file=full, hint=hint))
            continue
        path = url if single else full
        found.append(Found(path=path, bytes=size, stamp=stamp_of(files[name]), identity=(full,)))
    return found


def _full(url: str, name: str) -> str:
    """The URL of a file that was found by another, whose protocols it goes through too."""
    links = url.split("::")
    place = next((i for i, link in enumerate(links) if "://" in link), 0)
    protocol = links[place].partition("://")[0]
    links[place] = name if "://" in name else f"{protocol}://{name}"
    return "::".join(links)
