"""The answer of `meshwright predict`: one plan's time and memory, by stage, by term or by rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Row, Table
from meshwright.base.units import GIB, format_bytes, format_number
from meshwright.plan.words import plan_words
from meshwright.report.headline import adapter_words, assumed_line, job_record, read_line
from meshwright.report.terms import value_words
from meshwright.search.result import Candidate, assumed, describe, summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.cost.predict import Prediction
    from meshwright.cost.terms import Term
    from meshwright.plan.job import Job
    from meshwright.report.page import Block

VIEWS = ("stage", "term", "rank")
_RESIDENT = ("weights", "gradients", "optimizer", "workspace", "activations")


def prediction_page(
    job: Job, prediction: Prediction, *, by: str = "stage", file: str
) -> list[Block]:
    """Headline, time, memory, then the table that `by` asks for; `file` holds the plan."""
    tables = {"stage": stage_table, "term": term_table, "rank": rank_table}
    return [
        read_line(job),
        f"plan: {describe(job.plan)}",
        assumed_line((adapter_words(job.plan), *assumed(job), *job.model.assumptions)),
        "",
        time_line(job, prediction),
        memory_line(job, prediction),
        "",
        tables[by](job, prediction),
        "",
        f"next: meshwright explain {file} {'time' if by == 'term' else 'memory'}",
    ]


def time_line(job: Job, prediction: Prediction) -> str:
    """Step time with its interval, throughput and MFU."""
    candidate = Candidate(job=job, prediction=prediction)
    low, high = format_number(prediction.low_s), format_number(prediction.high_s)
    return (
        f"step {format_number(prediction.step_time_s)} s ({low} to {high} s with 90% confidence), "
        f"{format_number(candidate.tokens_per_s_per_gpu)} tokens/s/GPU, "
        f"MFU {100 * prediction.mfu:.1f}% ({prediction.mfu_convention}), "
        f"limited by {prediction.limited_by}"
    )


def memory_line(job: Job, prediction: Prediction) -> str:
    """Peak of the fullest stage against what a GPU has."""
    room = job.cluster.gpu.memory_bytes
    context_bytes = prediction.required_bytes - prediction.upper_bytes
    verdict = "fits"
    if prediction.peak_bytes + context_bytes > room:
        verdict = "does not fit"
    elif prediction.required_bytes > room:
        verdict = "may not fit: the estimate does, its upper bound does not"
    peak, needed = format_bytes(prediction.peak_bytes), format_bytes(prediction.required_bytes)
    return (
        f"memory {peak} allocated on the fullest GPU (stage {prediction.fullest_stage}), "
        f"{needed} with margin and buffers, of {format_bytes(room)}: {verdict}"
    )


def stage_table(job: Job, prediction: Prediction) -> Table:
    """One row a pipeline stage: GiB by category, which add up to the peak, and what it needs.

    "transient" is the rest of the fullest moment: logits, gathered layers, buffers.
    """
    del job
    context_bytes = prediction.required_bytes - prediction.upper_bytes
    stages = {
        stage: _stage_row(parts, context_bytes=context_bytes)
        for stage, parts in stage_parts(prediction.terms).items()
    }
    parts = dict.fromkeys(part for row in stages.values() for part in row)
    columns = (
        Column(key="stage", title="GiB", align="left"),
        *(Column(key=part, title=part.replace("_", " "), align="right") for part in parts),
    )
    rows = tuple(
        Row(cells={"stage": stage, **{p: f"{b / GIB:.2f}" for p, b in row.items()}})
        for stage, row in stages.items()
    )
    return Table(columns=columns, rows=rows)


def _stage_row(parts: Mapping[str, float], *, context_bytes: float) -> dict[str, float]:
    """What stays, the rest of the peak, the peak and what the device must have; host if any."""
    row = {part: parts.get(part, 0.0) for part in _RESIDENT}
    peak = parts.get("peak", 0.0)
    row |= {"transient": peak - sum(row.values()), "peak": peak}
    row["needs"] = parts.get("upper", peak) + context_bytes
    return row | {"host": host} if (host := parts.get("host", 0.0)) else row


def term_table(job: Job, prediction: Prediction) -> Table:
    """One row a part of the step time, longest first, with its share."""
    del job
    parts = time_parts(prediction.terms)
    total = prediction.step_time_s
    columns = (
        Column(key="term", title="term"),
        Column(key="value", title="time", align="right"),
        Column(key="share", title="% of step", align="right"),
        Column(key="evidence", title="evidence"),
    )
    rows = tuple(
        Row(
            cells={
                "term": name,
                "value": value_words(term.value, term.unit),
                "share": f"{100 * term.value / total:.1f}" if term.unit == "s" else "",
                "evidence": term.evidence,
            }
        )
        for name, term in parts.items()
    )
    return Table(columns=columns, rows=rows)


def rank_table(job: Job, prediction: Prediction) -> Table:
    """Ranges of global ranks with their stage and its peak; pp is the slowest axis of the mesh."""
    pp = int(job.plan.pp)
    width = int(job.plan.tp) * int(job.plan.cp) * int(job.plan.dp)
    columns = (
        Column(key="ranks", title="ranks"),
        Column(key="stage", title="stage", align="right"),
        Column(key="peak", title="peak GiB", align="right"),
    )
    rows = []
    for stage in range(pp):
        peak = prediction.terms.get(f"memory.stage{stage}.peak")
        cells = {"ranks": f"{stage * width}-{(stage + 1) * width - 1}", "stage": str(stage)}
        rows.append(Row(cells=cells | {"peak": f"{peak.value / GIB:.2f}" if peak else ""}))
    return Table(columns=columns, rows=tuple(rows))


def stage_parts(terms: Mapping[str, Term]) -> dict[str, dict[str, float]]:
    """Bytes by part for each stage, from terms named memory.<stage>.<part>."""
    stages: dict[str, dict[str, float]] = {}
    for name, term in terms.items():
        parts = name.split(".")
        if len(parts) == 3 and parts[0] == "memory" and term.unit == "bytes":
            stages.setdefault(parts[1], {})[parts[2]] = float(term.value)
    return stages


def time_parts(terms: Mapping[str, Term]) -> dict[str, Term]:
    """The leaves of the time tree, longest first."""
    names = [name for name in terms if name.startswith("time.")]
    parents = {name.rsplit(".", 1)[0] for name in names}
    leaves = [name for name in names if name not in parents]
    return {n: terms[n] for n in sorted(leaves, key=lambda n: -float(terms[n].value))}


def prediction_record(job: Job, prediction: Prediction) -> dict[str, Any]:
    """The whole prediction for JSON."""
    return {
        "job": job_record(job),
        "plan": plan_words(job.plan, every=True),
        "prediction": summary(Candidate(job=job, prediction=prediction))
        | {"needs_gib": prediction.required_bytes / GIB},
        "assumptions": [*assumed(job), *job.model.assumptions],
        "terms": {
            name: {"value": term.value, "unit": term.unit, "evidence": term.evidence}
            for name, term in prediction.terms.items()
        },
    }
