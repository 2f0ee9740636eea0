"""What the arguments of a loader may be: their types and ranges, told by name."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.errors import InvalidInput
from meshwright.base.finding import Finding
from meshwright.base.names import did_you_mean
from meshwright.base.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST_SIZE = 2**31 - 1  # of batches and groups of ranks
LARGEST_SEED = 2**63 - 1
MOST_SAMPLES = 2**62
MOST_PREFETCHED = 1 << 16
MOST_TOKEN_COST = 1e12


def not_whole(name: str, value: Any, *, least: int, most: int) -> Iterator[Finding]:
    """A finding unless the value is a whole number of that range; bool is none, NumPy's are."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        wanted = f"a whole number from {least:,} to {most:,}"
        yield wrong(name, value, f"is not {wanted}", hint=f"{name}={max(least, 1)}")
    elif not least <= value <= most:
        bound, nearest = ("below", least) if value < least else ("above", most)
        yield wrong(name, value, f"is {bound} {nearest:,}", hint=f"{name}={nearest}")


def whole(name: str, value: Any, *, least: int, most: int) -> int:
    """The value as an int; InvalidInput where it is no whole number of that range."""
    refuse(not_whole(name, value, least=least, most=most))
    return int(value)


def number(name: str, value: Any, *, most: float) -> float:
    """The value as a float from 0; InvalidInput where it is none, is not finite, or too large."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if isinstance(value, bool) or not is_number or not 0 <= value <= most or math.isnan(value):
        hint = f"give a number from 0 to {most:g}"
        raise _refusal(wrong(name, value, "is no such number", hint=hint))
    return float(value)


def flag(name: str, value: Any) -> bool:
    """The value; InvalidInput where it is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        hint = f"{name}=True or {name}=False"
        raise _refusal(wrong(name, value, "is neither True nor False", hint=hint))
    return bool(value)


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """The value; InvalidInput where it is none of the words that are known."""
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(value, known) if isinstance(value, str) else f"one of {known}"
        raise _refusal(wrong(name, value, "is none of the choices", hint=hint))
    return value


def path(name: str, value: Any) -> str:
    """The value as text; InvalidInput where it is no path."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        hint = "give the folder of a build, or a blend.toml"
        raise _refusal(wrong(name, value, "is no path", hint=hint))
    return str(os.fspath(value))


def wrong(name: str, value: Any, reason: str, *, hint: str) -> Finding:
    """A finding on one argument."""
    message = f"{name} = {shown(value)} {reason}"
    return Finding(message=message, key=name, value=value, reason=reason, hint=hint)


def refuse(findings: Iterator[Finding]) -> None:
    """InvalidInput with the findings, if there are any."""
    if found := tuple(findings):
        raise _refusal(*found)


def _refusal(*findings: Finding) -> InvalidInput:
    return InvalidInput(findings, hint=findings[0].hint)
