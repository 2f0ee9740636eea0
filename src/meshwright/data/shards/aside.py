"""Lines that were no documents, as rejected.jsonl tells."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.data.shards.damage import damaged
from meshwright.data.shards.names import REJECTED

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A line of rejected.jsonl."""

    input: str
    line: int
    reason: str  # of source.rejects.REJECTS
    excerpt: str  # how the line begins


def set_aside(folder: Path, file: str, line: int) -> SetAside | None:
    """The line that was set aside at file:line, the end of the file's path is enough; None if none.

    InvalidInput when rejected.jsonl is damaged.
    """
    path = folder / REJECTED
    if not path.is_file():
        return None
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                record = json.loads(text)
                found = record["file"] == file or record["file"].endswith(f"/{file}")
                if found and record["line"] == line:
                    return SetAside(
                        input=record["file"],
                        line=line,
                        reason=str(record["reason"]),
                        excerpt=str(record["excerpt"]),
                    )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged(path, f"cannot be read: {error}") from None
    return None
