"""Libraries that only the data commands use, imported when one is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from meshwright.base.errors import MeshwrightError


def need(library: str, purpose: str, *, extra: str = "data") -> Any:
    """The module `library`; a MeshwrightError that says what to install when it is missing."""
    try:
        return import_module(library)
    except ImportError as error:
        root = library.partition(".")[0]
        raise MeshwrightError(
            f"{purpose} needs {root}, which cannot be imported ({error})",
            hint=f"pip install 'meshwright[{extra}]'",
        ) from None
