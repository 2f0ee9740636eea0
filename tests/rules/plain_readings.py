"""Readings of no framework in particular: every value is stated, at no place of its own."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from meshwright.frameworks.framework import Framework
from meshwright.frameworks.reading import Config, Reading
from meshwright.frameworks.setting import Setting, Source, Span, Value

PLAIN = Framework(
    name="plain",
    title="Plain",
    package="none",
    syntaxes=("yaml",),
    file_name="plain.yaml",
    scopes=(),
    newest="1",
    recognizes=lambda _parsed: 0.0,
    interpret=lambda _config, _values: MappingProxyType({}),
    stack="megatron",
)
_SOURCE = Source(file="a.yaml", text="x: 1", syntax="yaml")


def setting(name: str, value: Any) -> Setting:
    """A setting at the first character of a file."""
    span = Span(0, 1)
    return Setting(
        name=name, spelled=name, value=value, source=_SOURCE, key=span, where=span, whole=span
    )


def reading(unknown: dict[str, Any] | None = None, **values: Any) -> Reading:
    """A reading that states values by variable, and keys that no table has."""
    config = Config(
        framework=PLAIN,
        version="",
        settings={},
        unknown=tuple(setting(n, v) for n, v in (unknown or {}).items()),
    )
    held = {n: Value(value=v, settings=(setting(n, v),)) for n, v in values.items()}
    return Reading(config=config, values=held)
