"""What the pages of docs/reference are put together from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by scripts/generate_docs.py; change the code, then run `make docs`. -->"


def title(text: str) -> str:
    """How a page begins."""
    return f"{NOTE}\n\n# {text}\n"


def joined(lines: Iterable[str]) -> str:
    """The lines as one text."""
    return "\n".join(lines) + "\n"


def codes(spellings: Iterable[str]) -> str:
    """Words as code, with commas between them."""
    return ", ".join(f"`{spelled}`" for spelled in spellings)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def _cell(value: Any) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")
