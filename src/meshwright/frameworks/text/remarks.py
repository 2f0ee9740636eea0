"""What comments say of the machine and of other settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.frameworks.setting import Setting, Source, Value


def read_remarks(source: Source) -> tuple[dict[str, Value], tuple[Setting, ...]]:
    """The facts of the launch and the settings that comments state."""
    return {}, ()
