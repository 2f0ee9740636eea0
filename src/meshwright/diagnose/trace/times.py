"""Microseconds as files state them, as exact integer nanoseconds.

A float holds a microsecond with three decimals exactly enough below 2^43 (three months, to which
Kineto's times since `baseTimeNanoseconds` are bound). Between March and May 2024 Kineto stated
microseconds since 1970 with decimals: sixteen digits and three more, which a float cannot hold;
they are read as text.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EXACT_BELOW_US = 2.0**43
LATEST_US = 4.2e15  # the year 2103
LONGEST_US = 3.0e12  # 35 days
_WIDTH = 21  # sixteen digits, a point, three digits, a comma
_DIGITS = np.array([*range(16), 17, 18, 19])
_POWERS = 10 ** np.arange(18, -1, -1, dtype=np.int64)
BAD_NS = np.iinfo(np.int64).min  # a time that is none


def needs_text(times_us: NDArray[np.float64]) -> bool:
    """Whether some of the times have decimals that a float has lost."""
    large = times_us[np.abs(times_us) >= EXACT_BELOW_US]
    return bool(np.any(large != np.floor(large)))


def nanoseconds(times_us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Times in nanoseconds, `BAD_NS` where one is missing or beyond sense."""
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(times_us) <= LATEST_US)
    known = np.where(bad, 0.0, times_us)
    whole = np.floor(known)
    result: NDArray[np.int64] = whole.astype(np.int64) * 1000
    result += np.rint((known - whole) * 1000).astype(np.int64)
    result[bad] = BAD_NS
    return result


def nanoseconds_of_text(texts: Sequence[Any]) -> NDArray[np.int64]:
    """Times written as sixteen digits, a point and three more; one by one where any is not so."""
    raw = set(map(type, texts)) == {msgspec.Raw}
    text = b",".join([*texts, b""]) if raw else b""
    if text.startswith(b'"'):  # Ascend writes times as text, with a tab behind them
        text = text.replace(b'"', b"").replace(b"\\t", b"")
    joined = np.frombuffer(text, dtype=np.uint8)
    if len(joined) == _WIDTH * len(texts):
        rows = joined.reshape(-1, _WIDTH)
        digits = rows[:, _DIGITS] - ord("0")  # what is no digit wraps around, beyond 9
        if np.all(rows[:, 16] == ord(".")) and np.all(digits < 10):
            exact: NDArray[np.int64] = digits @ _POWERS
            return exact
    return np.fromiter(map(nanoseconds_of, texts), dtype=np.int64, count=len(texts))


def nanoseconds_of(value: Any) -> int:
    """One time of any kind in nanoseconds: number, text of a number, `Decimal`, raw JSON."""
    if type(value) is int:
        return value * 1000 if abs(value) <= LATEST_US else int(BAD_NS)
    if isinstance(value, msgspec.Raw):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return int(BAD_NS)
    try:
        exact = Decimal(value.replace("\\t", "").strip('"\t ') if isinstance(value, str) else value)
        return round(exact * 1000) if abs(exact) <= LATEST_US else int(BAD_NS)
    except (ArithmeticError, ValueError):
        return int(BAD_NS)
