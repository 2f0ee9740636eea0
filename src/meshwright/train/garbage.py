"""Python's garbage collection while a run lasts: at the same step on every rank, and never else."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERY = 50  # steps


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """No collection by itself inside; what is there already is not looked through again.

    A rank that collects at a step of its own makes all others wait. Looking through the objects of
    torch and transformers takes a third of a second, and copies them in a forked rank.
    """
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def collect_at(step: int) -> None:
    """Collects young objects at every so many steps."""
    if step % EVERY == 0:
        gc.collect(1)
