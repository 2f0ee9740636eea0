"""Configuration files read with the line and column of every value.

`read` picks the syntax by the file's ending. Everything that can go wrong with a file (not there,
not text, too large, too deep, not the syntax) is an `InvalidInput` whose finding names file, line
and column; nothing is executed and no tag but YAML's plain ones is honored.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.locate.document import Document, Key, Lines, Place, Stretch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Document", "Key", "Lines", "Place", "Stretch", "parse", "read", "read_text"]

LARGEST_FILE_BYTES = 2 * 2**20  # ten times the largest configuration seen
_SAVE_AS_UTF8 = "save it as UTF-8, as with iconv -t UTF-8"
SYNTAXES = {".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read(path: str | Path, *, syntax: str = "") -> Document:
    """The document in a file; `syntax` overrides what its ending says. InvalidInput if unusable."""
    chosen = syntax or SYNTAXES.get(Path(path).suffix.lower(), "")
    if not chosen:
        reason = f"its name ends in none of {', '.join(SYNTAXES)}"
        hint = "rename the file, or give another"
        raise InvalidInput(
            [Finding(message="cannot tell the syntax", file=str(path), reason=reason, hint=hint)]
        )
    return parse(read_text(path), syntax=chosen, file=str(path))


def parse(text: str, *, syntax: str, file: str = "") -> Document:
    """The document in `text`; `syntax` is "toml", "json" or "yaml". InvalidInput if malformed."""
    return _parser(syntax)(text, file)


def _parser(syntax: str) -> Callable[[str, str], Document]:
    """The parser of one syntax, imported only when it is needed."""
    if syntax == "toml":
        from meshwright.base.locate.toml import parse_toml

        return parse_toml
    if syntax == "json":
        from meshwright.base.locate.json import parse_json

        return parse_json
    from meshwright.base.locate.yaml import parse_yaml

    return parse_yaml


def read_text(path: str | Path, *, largest_bytes: int = LARGEST_FILE_BYTES) -> str:
    """The UTF-8 text of a file, a byte order mark dropped; InvalidInput says why it cannot be."""
    try:
        with open(path, "rb") as stream:
            raw = stream.read(largest_bytes + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from None
    if len(raw) > largest_bytes:
        reason = f"it is larger than {largest_bytes // 2**20} MiB"
        raise _unreadable(path, reason, hint="no configuration is; name another file")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw[:2]:
        raise _unreadable(path, "it is UTF-16 text, not UTF-8", line=1, hint=_SAVE_AS_UTF8)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        hint = _SAVE_AS_UTF8
        raise _unreadable(path, "it is not UTF-8 text", line=line, hint=hint) from None


def _unreadable(
    path: str | Path, reason: str, *, line: int = 0, hint: str = "check the path"
) -> InvalidInput:
    message = f"cannot read {str(path)!r}: {reason}"
    return InvalidInput(
        [Finding(message=message, file=str(path), line=line, reason=reason, hint=hint)]
    )
