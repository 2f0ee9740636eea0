"""The metrics of `meshwright train` as figures: metrics.jsonl, and summary.json beside it.

Names of the lines are those of `train.telling.record.Record`: `step_s` runs from the end of one
step to the end of the next, evaluation and saving left out; `data_wait_s` and `memory_bytes` are
the largest of all ranks. The first step of a start pays for what is done once and stands apart.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from meshwright.base.noun import dataclass
from meshwright.diagnose.logs.lines import lines_of
from meshwright.diagnose.text import refusal, whole_text
from meshwright.diagnose.trace.columns import Left

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

METRICS, SUMMARY = "metrics.jsonl", "summary.json"
HINT = f"give the --out folder of `meshwright train`, or its {METRICS}"
SUMMARY_BYTES = 1 << 20
SQUARABLE = 1e150  # of figures: sums of the squares of larger ones are no numbers
SLOW = 1.5  # times the median step from which a step is a slow one
NUMBERS = (
    *("step", "attempt", "step_s", "data_wait_s", "save_s", "evaluate_s", "time_s", "loss"),
    *("tokens", "labels", "tokens_per_s", "tokens_per_s_per_device", "mfu", "memory_bytes"),
)
OF_SUMMARY = ("world_size", "device", "ended", "checkpoint_stall_s", "first_step_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """Steps in columns, NaN where a line does not say; `steady`: all but the first of a start."""

    columns: Mapping[str, Floats]
    updated: Mask

    @property
    def steady(self) -> Mask:
        attempt = np.nan_to_num(self.columns["attempt"])
        first = np.ones(len(attempt), dtype=bool)
        first[1:] = attempt[1:] != attempt[:-1]
        return first if first.all() else ~first

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]


def read_metrics(path: str | Path) -> Mapping[str, Any]:
    """Figures of a run, by name; `path` is its folder or its metrics.jsonl.

    Times in seconds, shares of step time from 0 to 1: "steps", "attempts", "restarts",
    "skipped_steps", "not_finite_steps", "step_s_median", "step_s_p90", "step_s_variation" (standard
    deviation over mean), "slow_steps", "slow_steps_every" (their distance, where it is always the
    same), "slow_steps_share" (of the time, what they take over the median), "drift" (last third
    over first third, of thirty steps and more), "first_step_s_median", "data_wait_s_median",
    "data_wait_share", "save_s_" and "evaluate_s_" + "median" and "count", "save_share",
    "evaluate_share", "between_attempts_s", "tokens_per_s_median", "tokens_per_s_per_device_median",
    "mfu_median",
    "unlabelled_share" (tokens that the loss leaves out), "memory_bytes_max", "loss_first",
    "loss_last"; with summary.json also "planned_step_s", "step_over_plan", "planned_bytes",
    "bytes_over_plan", "world_size", "device", "ended", "checkpoint_stall_s". "left" has what could
    not be read. Raises `InvalidInput` where there is no step.
    """
    file = Path(path) / METRICS if Path(path).is_dir() else Path(path)
    left: list[Left] = []
    steps = _steps(file, left)
    figures = {
        **_counts(steps),
        **_lengths(steps),
        **_waits(steps),
        **_stalls(steps),
        **_rates(steps),
    }
    figures |= _planned(_summary(file.parent / SUMMARY, left), figures)
    return {
        "file": str(file),
        **{name: value for name, value in figures.items() if value is not None},
        "left": tuple(left),
    }


def _steps(file: Path, left: list[Left]) -> _Steps:
    rows: list[list[float]] = []
    updated: list[bool] = []
    bad, torn = 0, False
    for line in lines_of(file, left=left, cut=[]):
        if not line.strip():
            continue
        fields = _fields(line)
        bad, torn = bad + (fields is None), fields is None
        if fields is not None:
            rows.append([_number(fields.get(name)) for name in NUMBERS])
            updated.append(fields.get("updated") is not False)
    if not rows:
        raise refusal(file, "has no step of a run", hint=HINT)
    if bad:
        reason = "the last one is torn" if torn and bad == 1 else "no JSON objects with a step"
        left.append(Left(what="lines of metrics", count=bad, time_us=0.0, reason=reason))
    table = np.array(rows, dtype=np.float64).T
    return _Steps(
        columns=dict(zip(NUMBERS, table, strict=True)), updated=np.array(updated, dtype=bool)
    )


def _fields(line: str) -> dict[str, Any] | None:
    try:
        fields: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    usable = isinstance(fields, dict) and _number(fields.get("step")) >= 0
    return fields if usable and _number(fields.get("step_s")) >= 0 else None


def _number(value: Any) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < SQUARABLE else math.nan


def _counts(steps: _Steps) -> dict[str, Any]:
    attempts = len(set(np.nan_to_num(steps["attempt"]).tolist()))
    losses = steps["loss"][np.isfinite(steps["loss"])]
    return {
        "steps": len(steps.updated),
        "attempts": attempts,
        "restarts": attempts - 1,
        "skipped_steps": int((~steps.updated).sum()),
        "not_finite_steps": int((~np.isfinite(steps["loss"])).sum()),
        "loss_first": float(losses[0]) if len(losses) else None,
        "loss_last": float(losses[-1]) if len(losses) else None,
    }


LEAST_THIRD = 10  # steps: of fewer a single late one makes a drift


def _lengths(steps: _Steps) -> dict[str, Any]:
    """How long steps take, how much that varies, and how."""
    lengths = steps["step_s"][steps.steady]
    usual, mean = float(np.median(lengths)), float(lengths.mean())
    slow = lengths > SLOW * usual
    third = len(lengths) // 3
    first = steps["step_s"][~steps.steady] if not steps.steady.all() else lengths[:1]
    return {
        "step_s_median": usual,
        "step_s_p90": float(np.percentile(lengths, 90)),
        "step_s_variation": float(lengths.std() / mean) if mean > 0 else None,
        "slow_steps": int(slow.sum()),
        "slow_steps_every": _every(steps["step"][steps.steady][slow]),
        "slow_steps_share": _over(float((lengths[slow] - usual).sum()), float(lengths.sum())),
        "drift": _over(float(np.median(lengths[-third:])), float(np.median(lengths[:third])))
        if third >= LEAST_THIRD
        else None,
        "first_step_s_median": float(np.median(first)),
    }


def _every(numbers: Floats) -> int | None:
    """The distance between steps, where it is the same between all of them."""
    distances = set(np.diff(numbers).tolist())
    return int(distances.pop()) if len(numbers) > 2 and len(distances) == 1 else None


def _waits(steps: _Steps) -> dict[str, Any]:
    """What ranks wait for data, of the steps that are steady."""
    lengths, waits = steps["step_s"][steps.steady], steps["data_wait_s"][steps.steady]
    said = np.isfinite(waits)
    if not said.any():
        return {}
    waits = np.minimum(np.maximum(waits[said], 0.0), lengths[said])
    return {
        "data_wait_s_median": float(np.median(waits)),
        "data_wait_s_max": float(waits.max()),
        "data_wait_share": _over(float(waits.sum()), float(lengths[said].sum())),
    }


def _stalls(steps: _Steps) -> dict[str, Any]:
    """Saving, evaluating and starting again: their time over that of steps and of themselves."""
    total = float(np.nansum(steps["step_s"]))
    out: dict[str, Any] = {}
    stalls = {name: steps[f"{name}_s"] for name in ("save", "evaluate")}
    total += sum(float(np.nansum(np.maximum(s, 0.0))) for s in stalls.values())
    for name, seconds in stalls.items():
        said = np.maximum(seconds[np.isfinite(seconds)], 0.0)
        out[f"{name}_s_count"] = len(said)
        out[f"{name}_s_median"] = float(np.median(said)) if len(said) else None
        out[f"{name}_share"] = _over(float(said.sum()), total)
    out["between_attempts_s"] = _between(steps)
    return out


def _between(steps: _Steps) -> float | None:
    """Seconds from the last step of a start to the first one of the next, that step left out."""
    attempt, clock = np.nan_to_num(steps["attempt"]), steps["time_s"]
    later = np.flatnonzero(attempt[1:] != attempt[:-1]) + 1
    gaps = clock[later] - clock[later - 1] - steps["step_s"][later]
    gaps = gaps[np.isfinite(gaps)]
    return float(np.maximum(gaps, 0.0).sum()) if len(gaps) else None


def _rates(steps: _Steps) -> dict[str, Any]:
    names = ("tokens_per_s", "tokens_per_s_per_device", "mfu")
    tokens, labels = steps["tokens"], steps["labels"]
    both = np.isfinite(tokens) & np.isfinite(labels)
    labelled = _over(float(labels[both].sum()), float(tokens[both].sum()))
    memory = steps["memory_bytes"][np.isfinite(steps["memory_bytes"])]
    return {
        **{f"{name}_median": _median(steps[name][steps.steady]) for name in names},
        "tokens": int(np.nansum(tokens)),
        "unlabelled_share": None if labelled is None else min(max(1.0 - labelled, 0.0), 1.0),
        "memory_bytes_max": float(memory.max()) if len(memory) else None,
    }


def _median(values: Floats) -> float | None:
    said = values[np.isfinite(values)]
    return float(np.median(said)) if len(said) else None


def _over(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _summary(path: Path, left: list[Left]) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found: Any = msgspec.json.decode(whole_text(path, limit_bytes=SUMMARY_BYTES, left=left))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    left.append(Left(what=SUMMARY, count=1, time_us=0.0, reason="it is no JSON object"))
    return {}


def _planned(summary: Mapping[str, Any], figures: Mapping[str, Any]) -> dict[str, Any]:
    """What summary.json adds: the plan's prediction beside what was measured."""
    step_s = _number(summary.get("predicted_step_s"))
    memory = _number(summary.get("predicted_bytes"))
    used = figures.get("memory_bytes_max")
    return {
        **{name: v for name, v in _plain(summary, OF_SUMMARY) if name not in figures},
        "planned_step_s": step_s if step_s > 0 else None,
        "step_over_plan": figures["step_s_median"] / step_s if step_s > 0 else None,
        "planned_bytes": memory if memory > 0 else None,
        "bytes_over_plan": used / memory if memory > 0 and used is not None else None,
    }


def _plain(summary: Mapping[str, Any], names: Iterable[str]) -> list[tuple[str, Any]]:
    """The entries that are text or numbers."""
    return [(n, v) for n in names if isinstance(v := summary.get(n), int | float | str)]
