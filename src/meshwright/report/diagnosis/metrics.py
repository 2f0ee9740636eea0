"""The metrics of a run as a person reads them; `diagnose --json` has all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, table_of
from meshwright.base.units import format_bytes, format_duration, format_number
from meshwright.report.diagnosis import figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from meshwright.report.page import Block


def _share(value: float) -> str:
    return f"{value:.1%}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _times(value: float) -> str:
    return f"{value:.2f} times"


# figures of `logs.metrics` in words; those marked False are of no interest where they are 0
_WORDS: tuple[tuple[str, str, Callable[[float], str], bool], ...] = (
    ("steps", "steps", _count, True),
    ("step_s_median", "median step", format_duration, True),
    ("planned_step_s", "as planned", format_duration, False),
    ("step_s_p90", "90% of steps take at most", format_duration, True),
    ("slow_steps", "steps beyond 1.5 times the median", _count, False),
    ("slow_steps_every", "one every so many steps", _count, False),
    ("slow_steps_share", "share of time lost to them", _share, False),
    ("drift", "last third of the steps over the first", _times, False),
    ("first_step_s_median", "first step of a start", format_duration, True),
    ("data_wait_share", "waiting for data", _share, True),
    ("save_share", "saving", _share, False),
    ("evaluate_share", "evaluation", _share, False),
    ("restarts", "restarts", _count, False),
    ("between_attempts_s", "between a start and the next", format_duration, False),
    ("skipped_steps", "skipped steps", _count, False),
    ("not_finite_steps", "steps whose loss is not finite", _count, False),
    ("loss_first", "first loss", format_number, True),
    ("loss_last", "last loss", format_number, True),
    ("tokens_per_s_per_device_median", "tokens/s a device", _count, True),
    ("mfu_median", "MFU", _share, False),
    ("unlabelled_share", "tokens that the loss leaves out", _share, False),
    ("memory_bytes_max", "memory at most", format_bytes, False),
    ("planned_bytes", "as planned", format_bytes, False),
)


def metrics_blocks(found: Mapping[str, Any]) -> Iterator[Block]:
    """What a run's own metrics say of it, without what is 0 and had better be."""
    known = {key: value for key, value in found.items() if _is_number(value)}
    rows = [
        {"name": words, "value": figures.line(written(known[key]))}
        for key, words, written, always in _WORDS
        if key in known and (known[key] or always)
    ]
    file = figures.path(str(found.get("file", "metrics.jsonl")))
    if not rows:
        yield f"metrics of the run in {file}"
        return
    columns = (Column(key="name", title="the run"), Column(key="value", title="", align="right"))
    yield from (table_of(columns, rows), f"from {file}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
