"""A stretch of text that is personal data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.data.needs import need

if TYPE_CHECKING:
    from meshwright.data.documents import Bytes, Mask

ALNUM = bytes(
    code for code in range(128) if chr(code).isalnum()
)  # ASCII alone: scripts without spaces put their letters right beside an address


@dataclass(frozen=True, slots=True)
class Found:
    """Bytes `start` to `stop` of a document, and what is written in their place."""

    kind: str
    start: int
    stop: int
    placeholder: bytes


def chosen(match: bytes, count: int) -> int:
    """A number below `count` that depends on the match alone; letters' case does not count."""
    digest: int = need("xxhash", "masking of personal data").xxh3_64_intdigest(match.lower())
    return digest % count


def table(members: bytes) -> Mask:
    """Which of the 256 bytes are among `members`; mask [256]."""
    found = np.zeros(256, dtype=np.bool_)
    found[list(members)] = True
    return found


def digits(text: Bytes) -> Mask:
    """Which bytes are ASCII digits; mask of the same length."""
    return (text - np.uint8(0x30)) < 10  # what lies below "0" wraps round to large numbers
