"""What a command line starts from: the file it names, or a recipe function of torchtitan 0.3.

`recipes.csv` holds the values that torchtitan/models/*/config_registry.py (0.3.0) sets.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from meshwright.base.rows import rows_of
from meshwright.frameworks.reading import table_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.reading import Config
    from meshwright.frameworks.setting import Setting, Value


@cache
def recipes() -> Mapping[str, Mapping[str, str]]:
    """Values by field, as text, of every recipe by name."""
    found: dict[str, dict[str, str]] = {}
    for row in rows_of(__package__, "recipes.csv"):
        found.setdefault(row["recipe"], {})[row["field"]] = row["value"]
    return found


def with_recipe(config: Config, values: Mapping[str, Value]) -> tuple[Config, Mapping[str, Value]]:
    """The configuration with what the recipe it asks for states, and the table's values of it.

    A value of the recipe stands where the recipe is named; what is stated beside it outweighs it.
    """
    asked = config.settings.get("config")
    known = recipes().get(asked.value) if asked is not None and _is_name(asked.value) else None
    if asked is None or known is None:
        return config, values
    stated = {name: _setting(config, asked, name, text) for name, text in known.items()}
    full = replace(config, settings={**stated, **config.settings})
    return full, {**values, **table_values(full)}


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _setting(config: Config, asked: Setting, name: str, text: str) -> Setting:
    field = config.framework.table.find(name, config.version)
    value = text or None
    typed = field.read(value)[0] if field is not None else value
    return asked.replace(name=name, value=typed)
