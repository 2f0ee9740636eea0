"""Sizes, rates, durations and counts: text to numbers and back.

SI prefixes (k M G T P) are powers of 1000, binary ones (Ki Mi Gi Ti Pi) powers of 1024, and the two
are never mixed up: `80GB` is 80e9 bytes and `80GiB` is 80 * 2**30. Bits and bytes differ too:
`400Gb/s` is 50e9 bytes a second. A bare number is accepted and taken in the base unit (bytes,
bytes/s, seconds, tokens).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidUnit
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB, MIB, GIB, TIB = 2.0**10, 2.0**20, 2.0**30, 2.0**40

_SI = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": KIB, "Mi": MIB, "Gi": GIB, "Ti": TIB, "Pi": 2.0**50}
_PREFIX = {name: value for name, value in _SI.items() if name != "B"} | _BINARY
_NUMBER = pattern(r"\s*([+-]?\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?|[+-]?\.\d+)\s*(.*?)\s*\Z")
_LENGTH = pattern(r"(\d{1,10})([kKmM])\Z")
_MOST = 1e30  # nothing here is larger; anything above is a slip of the keyboard


@dataclass(frozen=True, slots=True)
class _Kind:
    """A dimension: what it is called, its suffixes with their factors, an example for the hint."""

    name: str
    units: Mapping[str, float]
    example: str


def _prefixed(suffix: str, factor: float = 1.0) -> dict[str, float]:
    return {prefix + suffix: value * factor for prefix, value in _PREFIX.items()}


_BYTES = _Kind("size", _prefixed("B"), "80GiB (2^30) or 80GB (10^9)")
_RATE = _Kind(
    "rate",
    {
        **_prefixed("B/s"),
        **_prefixed("b/s", 0.125),
        **_prefixed("bps", 0.125),
        **_prefixed("bit/s", 0.125),
    },
    "400Gb/s (bits) or 50GB/s (bytes)",
)
_DURATION = _Kind(
    "duration",
    {
        "ns": 1e-9,
        "us": 1e-6,
        "µs": 1e-6,
        "ms": 1e-3,
        "s": 1.0,
        "min": 60.0,
        "h": 3600.0,
        "d": 86400.0,
        "w": 604800.0,
    },
    "90s, 1.5h or 3d",
)
_TOKENS = _Kind(
    "number of tokens",
    {
        **_SI,
        **_BINARY,
        **{prefix + "tok": value for prefix, value in {**_SI, **_BINARY}.items()},
        **{prefix + "tokens": value for prefix, value in {**_SI, **_BINARY}.items()},
    },
    "4Mtok (10^6), 4Mitok (2^20) or 1.5T",
)


def parse_bytes(text: str | float) -> float:
    """Bytes in "80GiB", "1.5 TB" or a bare number; InvalidUnit otherwise."""
    return _parse(text, _BYTES)


def parse_rate(text: str | float) -> float:
    """Bytes per second in "400Gb/s" (bits) or "50GB/s" (bytes); InvalidUnit otherwise."""
    return _parse(text, _RATE)


def parse_duration(text: str | float) -> float:
    """Seconds in "3.5us", "90s", "2h", "3d"; InvalidUnit otherwise."""
    return _parse(text, _DURATION)


def parse_tokens(text: str | float) -> float:
    """Tokens in "4Mtok", "1.5T", "15Ttok" or a bare number; InvalidUnit otherwise."""
    return _parse(text, _TOKENS)


def parse_length(text: str | float) -> float:
    """Tokens of a row: 8192, "8192", or "128k", k being 1,024 as in "128k context"."""
    match = _LENGTH.match(text.strip().replace(",", "")) if isinstance(text, str) else None
    if match is not None:
        return int(match[1]) * (KIB if match[2] in "kK" else MIB)
    return parse_tokens(text)


def _parse(text: str | float, kind: _Kind) -> float:
    """The quantity in base units; refuses negatives, NaN, and what no machine holds."""
    if isinstance(text, bool):
        raise _invalid(text, kind, "is not a number")
    if isinstance(text, int | float):
        return _bounded(_as_float(text), text, kind)
    match = _NUMBER.match(text)
    if match is None:
        raise _invalid(text, kind, "does not start with a number")
    number, suffix = match.groups()
    factor = 1.0 if suffix == "" else kind.units.get(suffix)
    if factor is None:
        raise _invalid(text, kind, _why_not(suffix, kind))
    return _bounded(_as_float(number.replace(",", "").replace("_", "")) * factor, text, kind)


def _as_float(number: str | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _bounded(value: float, text: str | float, kind: _Kind) -> float:
    if math.isnan(value):
        raise _invalid(text, kind, "is not a number")
    if value < 0:
        raise _invalid(text, kind, "is negative")
    if value > _MOST:
        raise _invalid(text, kind, "is absurdly large")
    return value


def _why_not(suffix: str, kind: _Kind) -> str:
    """What is wrong with a suffix, naming the usual slips."""
    if kind is _BYTES and suffix in {"k", "K", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"}:
        return f"has no unit after {suffix!r}"
    if kind is _BYTES and suffix.endswith("b") and suffix[:-1] in _PREFIX:
        return f"ends in {suffix!r}, which is bits"
    close = {unit.lower(): unit for unit in kind.units}.get(suffix.lower())
    if close:
        return f"ends in {suffix!r}; write {close!r} (case matters)"
    return f"ends in {suffix!r}, which is no unit of a {kind.name}"


def _invalid(text: object, kind: _Kind, reason: str) -> InvalidUnit:
    shown = str(text) if len(str(text)) <= 40 else f"{str(text)[:37]}..."
    message = f"{shown!r} {reason}"
    return InvalidUnit(message, hint=f"write a {kind.name} such as {kind.example}")


def format_bytes(value: float) -> str:
    """Binary units with three significant digits: "68.2 GiB"."""
    return _format(value, (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)), "B")


def format_rate(value_bytes_per_s: float) -> str:
    """Decimal bytes per second: "450 GB/s"."""
    steps = (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3))
    return _format(value_bytes_per_s, steps, "B/s")


def format_duration(value_s: float) -> str:
    """The largest unit that leaves at least one: "1.25 s", "320 ms", "3.4 d"."""
    if value_s == 0:
        return "0 s"
    steps = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
    return _format(value_s, steps, "ns", least=1e-9)


def format_count(value: float) -> str:
    """Decimal count without a space: "70.6B", "4.19M", "1.5T"; whole below a thousand if it is."""
    if abs(value) < 1000 and value == int(value):
        return f"{value:.0f}"
    steps = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))
    return _format(value, steps, "").replace(" ", "")


def format_number(value: float, *, digits: int = 3) -> str:
    """`digits` significant digits, thousands grouped, no exponent between 1e-4 and 1e15."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    value = float(f"{value:.{digits - 1}e}") if abs(value) < 10**digits else value
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude >= digits - 1:
        return f"{value:,.0f}" if magnitude < 15 else f"{value:.{digits - 1}e}"
    if magnitude < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits - 1 - magnitude}f}"


def _format(
    value: float, steps: tuple[tuple[str, float], ...], base: str, *, least: float = 1
) -> str:
    """`value` in the largest unit of `steps` that it reaches after rounding."""
    for unit, size in steps:
        if abs(value) >= size * 0.9995:
            return f"{format_number(value / size)} {unit}"
    return f"{format_number(value / least)} {base}"
