"""A conversion in words: what was carried over, what was not, memory and time before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.units import GIB, format_number
from meshwright.report.check.texts import Texts
from meshwright.report.findings import finding_lines, finding_record

if TYPE_CHECKING:
    from meshwright.api.converting import Conversion
    from meshwright.cost.predict import Prediction


def conversion_lines(conversion: Conversion, *, written: tuple[str, ...] = ()) -> list[str]:
    """What the target refuses and what is lost, each with its place, and a summary."""
    texts = Texts()
    lines: list[str] = []
    for finding in (*conversion.refused, *conversion.lost):
        lines += [*finding_lines(finding, texts), ""]
    lines.append(_summary(conversion))
    lines += [f"written: {path}" for path in written]
    if conversion.command:
        lines.append(f"start with: {conversion.command}")
    if conversion.to_state:
        lines.append(f"state before: {', '.join(conversion.to_state)}")
    lines += _figures(conversion)
    if conversion.assumed and not (conversion.before and conversion.after):
        missing = ", ".join(conversion.assumed)
        lines.append(f"not predicted: {missing} not stated; give --model, --gpus, --nodes or --set")
    return lines


def _summary(conversion: Conversion) -> str:
    head = f"{conversion.source} to {conversion.target}"
    if conversion.refused:
        return f"{head}: {conversion.target} cannot run this plan, nothing is written"
    settings = f"{conversion.carried} setting{'' if conversion.carried == 1 else 's'}"
    count = len(conversion.differences)
    changes = f"{count} change{'' if count == 1 else 's'} of the plan" if count else "the same plan"
    return f"{head}: {settings} carried over, {conversion.dropped} not; {changes}"


def _figures(conversion: Conversion) -> list[str]:
    """Memory and step time of both, or nothing where they are not known.

    After is on the target's own software, as `check` has it of the written files; the changes'
    costs are counted on the source's, which is told where the two differ.
    """
    before, same = conversion.before, conversion.after
    if before is None or same is None:
        return []
    after = conversion.there or same
    memory = [f"{p.peak_bytes / GIB:.1f}" for p in (before, after, same)]
    times = [format_number(p.step_time_s) for p in (before, after, same)]
    differs = (memory[1], times[1]) != (memory[2], times[2])
    software = (
        f"on the software of {conversion.source}, by which the changes are counted: "
        f"{memory[2]} GiB, {times[2]} s after"
    )
    return [
        f"peak memory: {memory[0]} GiB before, {memory[1]} GiB after",
        f"step time: {times[0]} s before, {times[1]} s after",
        *([software] if differs else ()),
    ]


def conversion_record(conversion: Conversion, *, written: tuple[str, ...] = ()) -> dict[str, Any]:
    """A conversion for JSON."""
    return {
        "source": conversion.source,
        "target": conversion.target,
        "files": dict(conversion.files),
        "command": conversion.command,
        "to_state": list(conversion.to_state),
        "written": list(written),
        "carried": conversion.carried,
        "dropped": conversion.dropped,
        "lost": [finding_record(finding) for finding in conversion.lost],
        "differences": [finding_record(finding) for finding in conversion.differences],
        "refused": [finding_record(finding) for finding in conversion.refused],
        "assumed": list(conversion.assumed),
        "before": _prediction_record(conversion.before),
        "after": _prediction_record(conversion.after),
        "there": _prediction_record(conversion.there),
    }


def _prediction_record(prediction: Prediction | None) -> dict[str, float] | None:
    if prediction is None:
        return None
    return {
        "step_time_s": prediction.step_time_s,
        "peak_gib": prediction.peak_bytes / GIB,
        "required_gib": prediction.required_bytes / GIB,
    }
