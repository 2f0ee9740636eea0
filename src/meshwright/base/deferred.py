"""A mapping that is worked out when it is first looked into, for what most callers never ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

Name = TypeVar("Name")
Item = TypeVar("Item", covariant=True)


class Deferred(Mapping[Name, Item]):
    """The mapping that `make` returns, called once, when something of it is asked."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Mapping[Name, Item]]) -> None:
        self._make = make
        self._found: Mapping[Name, Item] | None = None

    def _all(self) -> Mapping[Name, Item]:
        if self._found is None:
            self._found = self._make()
        return self._found

    def __getitem__(self, name: Name) -> Item:
        return self._all()[name]

    def __iter__(self) -> Iterator[Name]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(self._all())
