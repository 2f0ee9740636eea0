"""A framework that takes every field of another one beside its own."""

from __future__ import annotations

from functools import lru_cache

from meshwright.base.noun import dataclass
from meshwright.frameworks.field import Table, load_table
from meshwright.frameworks.framework import Framework, framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended(Framework):
    """A framework on top of `base`; its own rows come first where both have a name."""

    base: str

    @property
    def table(self) -> Table:
        """The rows of both tables, read when first needed."""
        return _table(self.package, self.name, self.base)


@lru_cache(maxsize=8)
def _table(package: str, name: str, base: str) -> Table:
    own, below = load_table(package, name), framework(base).table
    return Table(name, [*own.fields, *below.fields])
