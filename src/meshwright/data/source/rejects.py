"""Documents that cannot be read: set aside with their place and the reason, never fatal alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

REJECTS: Mapping[str, str] = {  # reason: what it says
    "json": "not valid JSON",
    "encoding": "not valid UTF-8",
    "not_an_object": "JSON, but not an object with fields",
    "missing": "has no such text field",
    "null": "the text is null",
    "not_text": "the text is not a string",
    "too_long": "longer than limits.document_bytes",
    "too_deep": "nested too deep",
}
EXCERPT_BYTES = 160


@dataclass(frozen=True, slots=True)
class Rejected:
    """One line, row or document that was set aside; `line` counts as that of `Documents` does."""

    input: int
    line: int
    reason: str  # of REJECTS
    excerpt: bytes  # how it begins, at most EXCERPT_BYTES
