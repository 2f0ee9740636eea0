"""Any file that belongs to no framework we know: notes, planners' inputs, home-made trainers.

Its table is a list of usual names, and behind it the names of all other frameworks' fields, by
their last part. It claims no defaults: what a file does not say stays unsaid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.field import Table
    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Parsed, Value


class AnyFramework(Framework):
    """The framework of a file that no other one claims."""

    __slots__ = ()

    @property
    def table(self) -> Table:
        """Usual names, and the names of all frameworks."""
        from meshwright.frameworks.generic.table import any_table

        return any_table()


def recognizes(_parsed: Parsed) -> float:
    """Never by itself: it takes what is left."""
    return 0.01


def interpret(config: Config, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Words of many frameworks as those of a plan; see `meaning`."""
    from meshwright.frameworks.generic import meaning

    return meaning.interpret(config, values)


FRAMEWORKS = (
    AnyFramework(
        name="generic",
        title="a file of no known framework",
        package=__name__,
        syntaxes=("yaml", "json", "toml", "python", "shell", "overrides"),
        file_name="config.yaml",
        scopes=("any",),
        newest="",
        recognizes=recognizes,
        interpret=interpret,
        aliases=("unknown", "any"),
    ),
)
