"""What tells how surely a source belongs to a framework: its names, its arguments, its programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.field import plain_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from meshwright.frameworks.setting import Parsed


def names(parsed: Parsed) -> list[str]:
    """The plain names of all settings."""
    return [plain_name(setting.spelled) for setting in parsed.settings]


def heads(parsed: Parsed) -> set[str]:
    """The first parts of all dotted names."""
    return {name.split(".", 1)[0] for name in names(parsed)}


def ends(parsed: Parsed) -> set[str]:
    """The last parts of all dotted names."""
    return {name.rsplit(".", 1)[-1] for name in names(parsed)}


def count(spelled: Collection[str], *telling: Collection[str]) -> int:
    """How many of the names are telling."""
    return sum(any(name in group for group in telling) for name in set(spelled))


def are_arguments(parsed: Parsed) -> bool:
    """Whether most settings are spelled as arguments, with leading dashes."""
    dashed = sum(setting.spelled.startswith("--") for setting in parsed.settings)
    return dashed * 2 > len(parsed.settings)


def runs(parsed: Parsed, *words: str) -> bool:
    """Whether one of the programs has one of the words in its name."""
    return any(word in program.lower() for program in parsed.programs for word in words)
