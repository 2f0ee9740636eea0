"""Texts of configurations into settings with their places, and back; nothing is executed.

`parse_source` reads one source of any syntax, `syntax_of` tells which it is. `render` writes
settings as a new file, `edit` changes them in one that exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.text.syntax import syntax_of

if TYPE_CHECKING:
    from meshwright.frameworks.setting import Parsed, Source

__all__ = ["parse_source", "syntax_of"]


def parse_source(source: Source) -> Parsed:
    """What a source states; InvalidInput with line and column where it is not in its syntax."""
    from meshwright.frameworks.text.parse import parse

    return parse(source)
