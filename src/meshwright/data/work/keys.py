"""Keys of units: a hash of all that a unit is made from, so that what no longer fits is made again.

The key of a unit covers the settings that matter to its stage, the digests of the files that those
settings name, and the keys of the units that it reads. Nothing else may change what it holds.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from meshwright import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.data.work.store import Store

FORMAT = 2  # raised whenever a stage writes another thing from the same settings and input


def key_of(*parts: Any) -> str:
    """A hash of settings (dataclasses), texts, numbers, bytes and sequences of these; 32 digits.

    Another version of this program has other keys: what it left half done is made again.
    """
    return digest_of(__version__, FORMAT, *parts)


def digest_of(*parts: Any) -> str:
    """The same for any version."""
    text = json.dumps([_plain(part) for part in parts], sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def keys_read(store: Store, stage: str, numbers: Iterable[int]) -> list[str]:
    """The keys that finished units of a stage were made by, "" for one that is not there."""
    records = (store.record(stage, number) for number in numbers)
    return [str(record.get("key", "")) if record else "" for record in records]


def _plain(value: Any) -> Any:
    """What `json` can write: a dataclass as its name and fields, bytes as their digest."""
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {type(value).__name__: named}
    if isinstance(value, bytes):
        return hashlib.blake2b(value, digest_size=16).hexdigest()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value
