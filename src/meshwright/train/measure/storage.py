"""Every storage of this rank from birth to death, with what it is for.

A storage is born in some operator, may be resized (FSDP does) and dies with its last tensor. Each
change is an event; a peak is a place among the events, and what lay in memory there is added up
afterwards, when it is known what became of each storage.
"""

from __future__ import annotations

import weakref
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from meshwright.base.noun import dataclass
from meshwright.train.adapters.storages import key_of, storage_of, watched_resizes

if TYPE_CHECKING:
    from collections.abc import Iterable


class Category(IntEnum):
    """What memory is for."""

    WEIGHTS = 0
    GRADIENTS = 1
    OPTIMIZER = 2
    ACTIVATIONS = 3  # born in a forward pass, alive after it
    LOGITS = 4  # born in the loss, forward or backward
    COMMUNICATION = 5  # gathered parameters, buffers of reductions
    TEMPORARIES = 6  # everything else

    @property
    def label(self) -> str:
        """The name as printed."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that was alive in a stretch: bytes, and at which event."""

    bytes: int
    event: int


class StorageTracker(TorchDispatchMode):
    """Follows every storage while it is entered; `now` bytes are alive.

    `label` is the category of what is born next. Sees real tensors, fake tensors and DTensors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.label = Category.TEMPORARIES
        self.now = 0
        self.categories: list[Category] = []  # of every storage, in order of birth
        self.events: list[tuple[int, int]] = []  # (storage, change in bytes)
        self._numbers: dict[int, int] = {}  # of the live storages by key
        self._sizes: list[int] = []
        self._best = Peak(bytes=0, event=0)

    def see(self, tensor: Any, category: Category | None = None) -> int | None:
        """The number of a tensor's storage, noted if new; under `category` if one is given."""
        storage = storage_of(tensor)
        if storage is None:
            return None
        number = self._numbers.get(key_of(storage))
        if number is None:
            number = self._born(storage, self.label if category is None else category)
        elif category is not None:
            self.categories[number] = category
        self._resized(number, storage.nbytes())
        return number

    def see_all(self, tensors: Iterable[Any], category: Category) -> None:
        """Notes the storages of tensors as of one category, whatever they were before."""
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                self.see(tensor, category)

    def born_since(self, number: int) -> list[int]:
        """Numbers of the live storages born as number `number` or later."""
        return [n for n in range(number, len(self._sizes)) if self._sizes[n]]

    @property
    def count(self) -> int:
        """Storages seen so far: the number that the next one gets."""
        return len(self._sizes)

    def cut(self) -> Peak:
        """The peak since the last cut; a new stretch begins."""
        peak = self._best
        self._best = Peak(bytes=self.now, event=len(self.events))
        return peak

    def alive(self, category: Category) -> int:
        """Bytes of a category that are alive now."""
        pairs = zip(self.categories, self._sizes, strict=True)
        return sum(size for own, size in pairs if own is category)

    def composition(self, event: int) -> dict[Category, int]:
        """Bytes by category after the first `event` events."""
        return self.compositions([event])[event]

    def compositions(self, events: Iterable[int]) -> dict[int, dict[Category, int]]:
        """`composition` of several places at once, by place."""
        total = dict.fromkeys(Category, 0)
        found, done = {}, 0
        for event in sorted(set(events)):
            for number, change in self.events[done:event]:
                total[self.categories[number]] += change
            found[event], done = dict(total), event
        return found

    def most(self, category: Category, *, since: int = 0) -> int:
        """The most bytes of one category at once, from event `since` on."""
        now = best = self.composition(since)[category]
        for number, change in self.events[since:]:
            if self.categories[number] is category:
                now += change
                best = max(best, now)
        return best

    def _born(self, storage: Any, category: Category) -> int:
        number = len(self._sizes)
        self._numbers[key_of(storage)] = number
        self._sizes.append(0)
        self.categories.append(category)
        weakref.finalize(storage, self._died, key_of(storage), number)
        return number

    def _died(self, key: int, number: int) -> None:
        self._resized(number, 0)
        del self._numbers[key]

    def _resized(self, number: int, size: int) -> None:
        change = size - self._sizes[number]
        if not change:
            return
        self._sizes[number] = size
        self.now += change
        self.events.append((number, change))
        if self.now > self._best.bytes:
            self._best = Peak(bytes=self.now, event=len(self.events))

    def _storage_resized(self, storage: Any) -> None:
        number = self._numbers.get(key_of(storage))
        if number is not None:
            self._resized(number, storage.nbytes())

    def __enter__(self) -> Any:
        self._watch = watched_resizes(self._storage_resized)
        self._watch.__enter__()
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._watch.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.see(leaf)
        return result
