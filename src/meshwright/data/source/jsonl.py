"""Documents from lines of JSON.

A block of lines is parsed at once; only where a line of it is anything but a record with a string
for its text is it gone through line by line. What can be read is read: a lone surrogate escape
becomes U+FFFD; NaN, Infinity and numbers beyond a double, which Python and others write, stand for
null. A line of invalid UTF-8 is set aside, since a repair could change what is a string and what
is not. Lines above `LONG_BYTES` are parsed without their other fields, which may take thirty times
the memory of their text (unless a name that is sought holds a quote or a control character).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from meshwright.base.noun import dataclass
from meshwright.data.needs import need
from meshwright.data.source.rejects import EXCERPT_BYTES
from meshwright.data.source.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from meshwright.data.source.lines import Lines

LONG_BYTES = 1 << 20
LONGEST_ID = 1024  # characters
_ESCAPE_BYTES = 6  # as in \\ud800
_BOM = b"\xef\xbb\xbf"
# Each expression takes time in proportion to the line: none can begin to match twice in vain.
_SURROGATE = re.compile(rb"(?<!\\)(\\++)u([dD][89a-fA-F][0-9a-fA-F]{2})")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|NaN|-?Infinity|-?[0-9][0-9.eE+-]*+', re.DOTALL)
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_SLIM_NAME = re.compile(r'[^"\\\x00-\x1f]*')  # of fields that msgspec finds in a line
_MISSING = object()


class Unread(Exception):  # noqa: N818 - never leaves this module
    """A line that is no document; its argument is a reason of REJECTS."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Where in a record the text is, and the name of the document if that is wanted."""

    text: str
    id: str = ""

    @property
    def are_slim(self) -> bool:
        """Whether they can be found in a long line without the rest of it."""
        return all(_SLIM_NAME.fullmatch(name) for name in (self.text, self.id))


def jsonl_rows(
    blocks: Iterable[Lines], fields: Fields, reject: Callable[[int, str, bytes], None]
) -> Generator[Rows, None, int]:
    """The documents of lines; returns how many lines there were.

    `reject` is called with the number, the reason and the beginning of each line set aside.
    """
    loads = need("orjson", "reading jsonl").loads
    count = 0
    for block in blocks:
        count += len(block.lines)
        if block.too_long:
            reject(block.first, "too_long", block.lines[0])
            continue
        rows = _rows_at_once(block, fields, loads)
        yield rows or _rows_one_by_one(block, fields, loads=loads, reject=reject)
    return count


def _rows_at_once(block: Lines, fields: Fields, loads: Callable[[bytes], Any]) -> Rows | None:
    """All lines of a block; None when any of them is not as plain as can be."""
    lines, name = block.lines, fields.text
    if len(max(lines, key=len)) > LONG_BYTES:
        return None
    ids: list[str] = []
    try:
        if fields.id:
            records = [loads(line) for line in lines]
            texts = [record[name].encode() for record in records]
            ids = [id_of(record, fields.id) for record in records]
        else:
            texts = [loads(line)[name].encode() for line in lines]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return Rows(texts, range(block.first, block.first + len(lines)), ids)


def _rows_one_by_one(
    block: Lines,
    fields: Fields,
    *,
    loads: Callable[[bytes], Any],
    reject: Callable[[int, str, bytes], None],
) -> Rows:
    texts: list[bytes] = []
    numbers: list[int] = []
    ids: list[str] = []
    for number, line in enumerate(block.lines, block.first):
        try:
            record = record_of(line, fields, loads)
            if record is None:
                continue
            texts.append(text_of(record, fields.text))
        except Unread as reason:
            reject(number, str(reason), line[:EXCERPT_BYTES])
            continue
        numbers.append(number)
        if fields.id:
            ids.append(id_of(record, fields.id))
    return Rows(texts, numbers, ids)


def record_of(
    line: bytes, fields: Fields | None, loads: Callable[[bytes], Any]
) -> dict[str, Any] | None:
    """The record of a line, None for a blank one; of a long line no more than `fields` name.

    Raises Unread with the reason.
    """
    if fields is not None and len(line) > LONG_BYTES and fields.are_slim:
        return _slim(line, fields, loads)
    try:
        record = loads(line)
    except ValueError:
        line = line.removeprefix(_BOM)
        if not line.strip():
            return None
        record = _mended(line, loads)
    if not isinstance(record, dict):
        raise Unread("not_an_object")
    return record


def _mended(line: bytes, loads: Callable[[bytes], Any]) -> Any:
    """The value of a line after repair."""
    _check_encoding(line)
    line = _TOKEN.sub(_finite, with_pairs(line))
    try:
        return loads(line)
    except ValueError as error:
        deep = "depth" in str(error) or "ecursion" in str(error)
        raise Unread("too_deep" if deep else "json") from None


def _check_encoding(line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError:
        raise Unread("encoding") from None


def with_pairs(line: bytes) -> bytes:
    """JSON in which every escaped surrogate that is half of no pair is U+FFFD."""
    mended = bytearray()
    for at in _lone_surrogates(line):
        mended = mended or bytearray(line)
        mended[at : at + _ESCAPE_BYTES] = rb"\ufffd"
    return bytes(mended) or line


def _lone_surrogates(line: bytes) -> Iterator[int]:
    """Where the escapes stand."""
    high = -1  # one that waits for its other half
    for found in _SURROGATE.finditer(line):
        if len(found[1]) % 2 == 0:  # backslashes for themselves, then the letter u
            continue
        at, is_high = found.end() - _ESCAPE_BYTES, found[2][1] in b"89abAB"
        is_pair = not is_high and high >= 0 and at == high + _ESCAPE_BYTES
        if high >= 0 and not is_pair:
            yield high
        if not is_high and not is_pair:
            yield at
        high = at if is_high else -1
    if high >= 0:
        yield high


def _finite(token: re.Match[bytes]) -> bytes:
    """A token of JSON, or null for a number that no double holds."""
    text = token[0]
    if text[0] == 0x22:
        return text
    if text[-1] in b"Ny" or (_NUMBER.fullmatch(text) and math.isinf(float(text))):
        return b"null"
    return text


def _slim(line: bytes, fields: Fields, loads: Callable[[bytes], Any]) -> dict[str, Any] | None:
    """A record of what `fields` name, all under their dotted names; the rest is only checked."""
    line = line.removeprefix(_BOM)
    if not line.strip():
        return None
    _check_encoding(line)
    line = with_pairs(line)
    wanted = {name: _raw(line, name) for name in (fields.text, fields.id) if name}
    return {name: _scalar(raw, loads) for name, raw in wanted.items() if raw is not None}


def _raw(line: bytes, name: str) -> bytes | None:
    """The JSON of one field by its dotted path, None where it is not there."""
    head, dot, rest = name.partition(".")
    try:
        found = _decoder(name, head).decode(line)
    except msgspec.ValidationError:
        raise Unread("not_an_object") from None
    except RecursionError:
        raise Unread("too_deep") from None
    except msgspec.MsgspecError:
        raise Unread("json") from None
    if found.whole is not msgspec.UNSET:
        return bytes(found.whole)
    if not dot or found.head is msgspec.UNSET:
        return None
    try:
        return _raw(bytes(found.head), rest)
    except Unread as reason:
        if str(reason) == "not_an_object":
            return None
        raise


@lru_cache(maxsize=64)
def _decoder(whole: str, head: str) -> msgspec.json.Decoder[Any]:
    """Reads nothing of an object but two fields, and those as they are written."""
    raw = msgspec.Raw | msgspec.UnsetType
    names = {"whole": whole} if whole == head else {"whole": whole, "head": head}
    fields = [(field, raw, msgspec.UNSET) for field in names]
    return msgspec.json.Decoder(msgspec.defstruct("Wanted", fields, rename=names))


def _scalar(raw: bytes, loads: Callable[[bytes], Any]) -> Any:
    """The value of a string, number or constant; () for anything larger, which is not needed."""
    raw = raw.strip()
    if raw[:1] in (b"{", b"["):
        return ()
    try:
        return loads(raw)
    except ValueError:
        return None


def text_of(record: dict[str, Any], name: str) -> bytes:
    """The text of a record; raises Unread with the reason where it has none."""
    text = value_at(record, name)
    if isinstance(text, str):
        return text.encode()
    if text is _MISSING:
        raise Unread("missing")
    raise Unread("null" if text is None else "not_text")


def is_missing(record: dict[str, Any], name: str) -> bool:
    """Whether a record has no field of that dotted name."""
    return value_at(record, name) is _MISSING


def texts_in(record: dict[str, Any]) -> list[str]:
    """The dotted names of fields that hold strings, two levels deep, the longest string first."""
    found = {name: value for name, value in record.items() if isinstance(value, str)}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= {f"{name}.{k}": v for k, v in value.items() if isinstance(v, str)}
    return sorted(found, key=lambda name: -len(found[name]))


def id_of(record: dict[str, Any], name: str) -> str:
    """What a record calls itself, "" unless that is a string or a number."""
    value = value_at(record, name)
    if isinstance(value, str):
        return value[:LONGEST_ID]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""


def value_at(record: Any, name: str) -> Any:
    """The value at a dotted path; a key that holds the dots itself goes first."""
    if not isinstance(record, dict):
        return _MISSING
    if name in record:
        return record[name]
    head, dot, rest = name.partition(".")
    return value_at(record.get(head), rest) if dot else _MISSING
