"""Many short waits for a server, several at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_THREADS = 32
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[[Item], Result], items: Sequence[Item], *, at_once: bool
) -> list[Result]:
    """The function of every item, in their order; with `at_once` many threads share the waiting."""
    if not at_once or len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(function, items))
