"""Expected and found values, side by side, each kind with its tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SHARE = 1e-3  # of a time, or one microsecond
MICROSECOND = 1.0
POINT = 0.05  # of a percentage
RATE = 5e-3  # of a bandwidth or of TFLOP/s, which are printed with two or three digits
CLASS = 0.05  # of all kernel time
UNTOLD = (None, "", "None", -1)


@dataclass(frozen=True, slots=True)
class Miss:
    """A figure that is not as expected."""

    key: str
    expected: Any
    got: Any
    tolerance: str


Misses = Iterable[Miss]
Compare = Callable[[str, Any, Any], Misses]


def same(key: str, expected: Any, got: Any) -> Misses:
    """Equal words or whole numbers; the ways to say "not told" are equal too."""
    if expected != got and not (told(expected) is None and told(got) is None):
        yield Miss(key, expected, got, "exact")


def told(value: Any) -> Any:
    """None for what the trace does not tell."""
    return None if value in UNTOLD else value


def near(key: str, expected: float | None, got: Any, *, share: float, least: float) -> Misses:
    """Numbers within a share of the expected one, or within `least`."""
    if expected is None:
        yield from same(key, None, got)
    elif not isinstance(got, int | float) or not (  # NaN is no number
        abs(got - expected) <= max(share * abs(expected), least)
    ):
        yield Miss(key, expected, got, f"{share:.1%} or {least:g}")


def time(key: str, expected: Any, got: Any) -> Misses:
    """Microseconds; a part of no time may be left out."""
    yield from near(key, expected, got if got is not None else 0.0, share=SHARE, least=MICROSECOND)


def moment(key: str, expected: Any, got: Any) -> Misses:
    """Microseconds since 1970 or since the file's own start."""
    yield from near(key, expected, got, share=0.0, least=MICROSECOND)


def percent(key: str, expected: Any, got: Any) -> Misses:
    """Percent."""
    if expected is None:
        yield from same(key, expected, got)
    else:
        yield from near(key, expected, got or 0.0, share=SHARE, least=POINT)


def rate(key: str, expected: Any, got: Any) -> Misses:
    """GB/s or TFLOP/s."""
    yield from near(key, expected, got, share=RATE, least=0.006)


def count_of_gaps(key: str, expected: Any, got: Any) -> Misses:
    """A count that the rounding of clocks may move."""
    yield from near(key, expected, got, share=SHARE, least=1)


def share_of(value: float) -> Compare:
    """Ratios and shares within an absolute tolerance."""

    def compare(key: str, expected: Any, got: Any) -> Misses:
        yield from near(key, expected, got, share=SHARE, least=value)

    return compare


def within(share: float, least: float = 0.0) -> Compare:
    """Numbers within a share of the expected."""

    def compare(key: str, expected: Any, got: Any) -> Misses:
        yield from near(key, expected, got, share=share, least=least)

    return compare


def classes(key: str, expected: Mapping[str, float], got: Any) -> Misses:
    """Sums by kernel class: each within 5% of all kernel time, for names may be read otherwise."""
    most = CLASS * sum(expected.values())
    for name in sorted({*expected, *(got or {})}):
        mine, theirs = expected.get(name, 0.0), (got or {}).get(name, 0.0)
        if abs(mine - theirs) > most:
            yield Miss(f"{key}.{name}", mine, theirs, f"{most:.3f}, 5% of all kernel time")


def each(compare: Compare) -> Compare:
    """Sequences of equal length, or objects with equal names, item by item."""

    def walk(key: str, expected: Any, got: Any) -> Misses:
        if isinstance(expected, Mapping):
            for name, value in expected.items():
                yield from compare(f"{key}.{name}", value, (got or {}).get(name))
        elif len(expected) != len(got or ()):
            yield Miss(f"{key}.length", len(expected), len(got or ()), "exact")
        else:
            for number, (mine, theirs) in enumerate(zip(expected, got, strict=True)):
                yield from compare(f"{key}[{number}]", mine, theirs)

    return walk


def fields(rules: Mapping[str, Compare | None], unknown: set[str]) -> Compare:
    """Objects, name by name; None is a name that holds words for readers.

    A name without a rule is added to `unknown`.
    """

    def walk(key: str, expected: Any, got: Any) -> Misses:
        if not isinstance(got, Mapping):
            yield Miss(key, "an object", got, "present")
            return
        for name, value in expected.items():
            path = f"{key}.{name}" if key else name
            if name not in rules:
                unknown.add(path)
            elif (rule := rules[name]) is not None:
                yield from rule(path, value, got.get(name))

    return walk


def matched(by: Callable[[Any], Any], compare: Compare) -> Compare:
    """Sequences whose items are found by what names them; each expected one must be there.

    Of items with one name (kernels whose names are cut) the first is held against the first.
    """

    def walk(key: str, expected: Any, got: Any) -> Misses:
        held: dict[Any, list[Any]] = {}
        for item in reversed(got or []):
            held.setdefault(by(item), []).append(item)
        for number, item in enumerate(expected):
            path = f"{key}[{number}]"
            if not held.get(by(item)):
                yield Miss(path, by(item), None, "present")
            else:
                yield from compare(path, item, held[by(item)].pop())

    return walk
