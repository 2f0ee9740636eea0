"""Silence while a library may panic: Rust prints to the standard error before it raises."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDERR = 2


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Nothing reaches the terminal's standard error meanwhile; no exception is held back."""
    try:
        kept = os.dup(_STDERR)
    except OSError:  # there is none
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(kept)


def is_of_library(error: BaseException) -> bool:
    """Whether a library failed, rather than the user or the machine stopping the program: Rust's
    panics arrive as an exception that is not an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def first_line(error: BaseException) -> str:
    """What an exception says, at most one line."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
