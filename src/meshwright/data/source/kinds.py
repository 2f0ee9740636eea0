"""What a file is: format and compression, by its name and by how it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMATS: Mapping[str, str] = {
    **dict.fromkeys((".jsonl", ".json", ".ndjson", ".jsonlines", ".jl"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq", ".parq"), "parquet"),
    **dict.fromkeys((".txt", ".text", ".md", ".markdown", ".rst", ".adoc", ".tex", ".org"), "text"),
}
COMPRESSIONS: Mapping[str, str] = {".gz": "gz", ".gzip": "gz", ".zst": "zst", ".zstd": "zst"}
UNPACK: Mapping[str, str] = {  # how to turn what is not read into what is
    ".xz": "xz -dc FILE | zstd -o NEW.zst",
    ".bz2": "bzip2 -dc FILE | zstd -o NEW.zst",
    ".lz4": "lz4 -dc FILE | zstd -o NEW.zst",
    ".zip": "unzip -p FILE | zstd -o NEW.zst",
    ".tar": "tar -xf FILE",
    ".tgz": "tar -xzf FILE",
    ".7z": "7z x FILE",
}
_MAGICS = {  # of what is told apart from text by how it begins
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PAR1": ".parquet",
    b"PARE": ".encrypted-parquet",
    b"\xfd7zXZ\0": ".xz",
    b"\x04\x22\x4d\x18": ".lz4",
    b"PK\x03\x04": ".zip",
    b"7z\xbc\xaf\x27\x1c": ".7z",
    b"Obj\x01": ".avro",
    b"ARROW1\0\0": ".arrow",
    b"\x89HDF": ".hdf5",
    b"%PDF-": ".pdf",
    b"\x7fELF": ".elf",
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpeg",
}
_WEAK_MAGICS = {b"BZh": ".bz2", b"ORC": ".orc"}  # text may begin so too
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TAR_AT, _TAR = 257, b"ustar"
HEAD_BYTES = 4096


class Kind(NamedTuple):
    """Format ("" = unknown) and compression."""

    format: str
    compression: str


def kind_by_name(path: str) -> Kind:
    """What the name says."""
    name = path.rpartition("/")[2].lower()
    stem, dot, ending = name.rpartition(".")
    compression = COMPRESSIONS.get(dot + ending, "")
    if compression:
        _, dot, ending = stem.rpartition(".")
    return Kind(FORMATS.get(dot + ending, ""), compression)


def unread_ending(path: str) -> str:
    """The ending of a name that says it is of a kind to be unpacked first, else ""."""
    name = path.rpartition("/")[2].lower()
    return next((ending for ending in UNPACK if name.endswith(ending)), "")


def magic(head: bytes) -> str:
    """The usual ending of a file that begins so, "" for text and whatever else is not known."""
    if len(head) >= 4 and head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return ".zst"
    if head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        return ".tar"
    known = _MAGICS | _WEAK_MAGICS if b"\0" in head else _MAGICS
    return next((ending for start, ending in known.items() if head.startswith(start)), "")


def is_utf16(head: bytes) -> bool:
    """Whether text begins with the byte order mark of UTF-16 (or of UTF-32), or is it without.

    Without a mark most characters of Western text have a zero byte, always on the same side.
    """
    sides = [head[side::2].count(0) for side in (0, 1)]
    return head.startswith(_UTF16) or (min(sides) == 0 and 4 * max(sides) > len(head))


def guessed(head: bytes) -> str:
    """jsonl or text by the first character of a text; "" where there are NULs."""
    if b"\0" in head:
        return ""
    return "jsonl" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "text"
