"""Functions that may not be there yet."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def verb(module: str, name: str) -> Any:
    """A function of the package `diagnose`, or None while it does not exist."""
    try:
        return getattr(import_module(f"meshwright.diagnose.{module}"), name, None)
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("meshwright.diagnose"):
            return None
        raise
