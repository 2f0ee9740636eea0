"""Times and shares of a diagnosis as text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.base.units import format_duration
from meshwright.report.check.visible import harmless

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 72
_COMMON = ("void ", "at::native::", "(anonymous namespace)::", "at::detail::")


def duration(us: float | None) -> str:
    """A time in the unit that fits: "21.4 ms"; empty where it is not known."""
    if us is None or not math.isfinite(us):
        return ""
    return format_duration(us / 1e6)


def share(part: float | None) -> str:
    """A share with one digit after the point: "17.3%"; empty where it is not known."""
    return "" if part is None or not math.isfinite(part) else f"{100 * part:.1f}%"


def line(text: str) -> str:
    """A text in one line, without what steers a terminal."""
    return harmless(" ".join(encodable(text).split()))


def encodable(text: str) -> str:
    """A text that UTF-8 can hold; bytes of file names that are none are written as escapes."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def name(text: str, longest: int = _LONGEST) -> str:
    """A name from a trace in one line, cut in the middle."""
    whole = line(text)
    if len(whole) <= longest:
        return whole
    head = (longest - 3) * 2 // 3
    return f"{whole[:head]}...{whole[len(whole) - (longest - 3 - head) :]}"


def path(text: str, longest: int = _LONGEST) -> str:
    """A path in one line, cut at its beginning; what is no path is cut as a name."""
    whole = line(text)
    if len(whole) <= longest or "/" not in whole:
        return name(text, longest)
    return f"...{whole[3 - longest :]}"


def kernel(text: str, longest: int = _LONGEST) -> str:
    """The name of a kernel less what many have in common, cut as `name` cuts."""
    for common in _COMMON:
        text = text.replace(common, "")
    return name(text, longest)


def rounded(values: Sequence[float], digits: int) -> list[str]:
    """Values with `digits` after the point whose texts sum to the text of their sum.

    Those that lose most by rounding down are rounded up (largest remainder).
    """
    scale = 10**digits
    floors = [math.floor(value * scale) for value in values]
    missing = round(sum(values) * scale) - sum(floors)
    order = sorted(range(len(values)), key=lambda n: floors[n] - values[n] * scale)
    for n in order[: max(missing, 0)]:
        floors[n] += 1
    return [f"{floor / scale:,.{digits}f}" for floor in floors]
