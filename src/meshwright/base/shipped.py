"""Where the data files are that a package ships.

`importlib.resources` also reads from archives, for which it imports what a folder does not need.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def shipped(package: str) -> Path:
    """The folder of an installed package."""
    return Path(next(iter(import_module(package).__path__)))
