"""Libraries that an extra brings, imported when one is needed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def need_all(libraries: Iterable[str], purpose: str, *, extra: str = "data") -> None:
    """MeshwrightError that names every one of `libraries` that is missing; none is imported."""
    missing = [library for library in libraries if not _is_installed(library)]
    if missing:
        raise MeshwrightError(
            f"{purpose} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} "
            "not installed",
            hint=f"pip install 'meshwright[{extra}]'",
        )


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):
        return False
