"""Python configurations read by their syntax tree, never executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.setting import Parsed

if TYPE_CHECKING:
    from meshwright.frameworks.setting import Source


def parse_python(source: Source) -> Parsed:
    """The settings that a module states."""
    return Parsed(source=source, settings=())
