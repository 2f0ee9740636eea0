"""One line about a step, for who watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.units import format_bytes, format_duration

if TYPE_CHECKING:
    from meshwright.train.settings import Expected
    from meshwright.train.telling.record import Record


def line_of(record: Record, *, steps: int, left_s: float, expected: Expected | None) -> str:
    """Step, loss, speed, memory, waits, and time to go; predicted figures stand behind measured."""
    predicted_s = expected.step_s if expected else None
    predicted_bytes = expected.peak_bytes if expected else None
    parts = [
        f"step {record.step:>{len(str(steps))}}/{steps}",
        f"loss {_number(record.loss)}",
        f"lr {record.learning_rate:.2e}",
        f"norm {_number(record.grad_norm)}",
        f"{_rate(record.tokens_per_s_per_device)} tok/s/dev",
        f"MFU {100 * record.mfu:.1f}%" if record.mfu is not None else "",
        _beside(
            f"step {format_duration(record.step_s)}",
            format_duration(predicted_s) if predicted_s else "",
        ),
        _beside(
            f"mem {format_bytes(record.memory_bytes)}",
            format_bytes(predicted_bytes) if predicted_bytes else "",
        ),
        f"data {100 * min(record.data_wait_s / record.step_s, 1):.0f}%" if record.step_s else "",
        f"left {format_duration(left_s)}",
        "" if record.updated else "not finite, left out",
        "" if record.evaluation_loss is None else f"evaluation {_number(record.evaluation_loss)}",
    ]
    return "  ".join(part for part in parts if part)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}" if value < 1e3 else f"{value:.2e}"


def _rate(tokens_per_s: float) -> str:
    return f"{tokens_per_s / 1e3:.1f}k" if tokens_per_s >= 1e4 else f"{tokens_per_s:.0f}"


def _beside(measured: str, predicted: str) -> str:
    return f"{measured} ({predicted} predicted)" if predicted else measured
