"""A run of `meshwright train` for people and programs: what will be run, and how it ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Table, table_of
from meshwright.base.units import format_bytes, format_count, format_duration, format_number
from meshwright.report.headline import read_line
from meshwright.search.result import describe

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.report.page import Block
    from meshwright.train.settings import Expected, Run
    from meshwright.train.telling.summary import Summary

_COLUMNS = (
    Column(key="what", title=""),
    Column(key="measured", title="measured", align="right"),
    Column(key="predicted", title="predicted", align="right"),
)


def start_lines(
    job: Job, run: Run, *, expected: Expected | None, nodes: int, ranks_per_node: int
) -> list[Block]:
    """What would be started."""
    work = job.workload
    tokens = run.steps * work.global_batch_size * work.seq_len
    ranks = nodes * ranks_per_node
    where = f"{ranks} {run.device} rank{'s' * (ranks != 1)}"
    where += f" on {nodes} nodes" if nodes > 1 else ""
    lines = [
        read_line(job),
        f"plan: {describe(job.plan)}",
        f"would train {run.steps:,} steps, {format_count(tokens)} tokens of {run.feed.source}, on "
        f"{where}, into {run.out}",
    ]
    if expected is not None and expected.step_s is not None:
        whole_s = run.steps * expected.step_s
        lines.append(
            f"predicted: {format_duration(expected.step_s)} a step, {format_duration(whole_s)} in "
            f"all, {format_bytes(expected.peak_bytes or 0)} on the fullest device"
        )
    return list(lines)


def summary_page(summary: Summary, *, out: str, traced: bool = False) -> list[Block]:
    """How a start of a run ended: losses, speed and memory beside what was predicted.

    `traced`: steps were profiled, and `diagnose` reads the folder.
    """
    if not summary.steps_here and summary.ended == "done" and summary.resumed_from:
        return _finished(summary, out)
    return [
        _headline(summary),
        _losses(summary),
        "",
        _table(summary),
        "",
        _checkpoints(summary, out),
        _next(summary, out),
        *([f"      meshwright diagnose {out}"] if traced else []),
    ]


def _finished(summary: Summary, out: str) -> list[Block]:
    """What is said where there was nothing left to train."""
    done, asked = summary.step, summary.steps
    fewer = f", more than the {asked:,} asked for" if done > asked else ""
    return [
        f"finished before: all {done:,} steps are in {out}/step-{done}{fewer}; nothing was trained",
        f"next: --steps {2 * done} with --resume goes on, or meshwright export {out}/step-{done} "
        "-o hf/",
    ]


def summary_record(summary: Summary | None, *, out: str, code: int) -> dict[str, Any]:
    """The same for programs."""
    return {"code": code, "out": out, "summary": None if summary is None else asdict(summary)}


def _headline(summary: Summary) -> str:
    devices = f"{summary.world_size} {summary.device} rank{'s' * (summary.world_size != 1)}"
    ended = "done" if summary.ended == "done" else "stopped, to be gone on with"
    since = f" (from step {summary.resumed_from:,})" if summary.resumed_from else ""
    return (
        f"{ended}: step {summary.step:,} of {summary.steps:,}{since}, "
        f"{format_count(summary.tokens)} tokens in {format_duration(summary.seconds)} on {devices}"
    )


def _losses(summary: Summary) -> str:
    losses = f"loss {_number(summary.first_loss)} -> {_number(summary.loss)}"
    if summary.evaluation_loss is not None:
        losses += f", evaluation {_number(summary.evaluation_loss)}"
    if summary.updates_left_out:
        losses += f"; {summary.updates_left_out} updates were not finite and left out"
    passes = ", ".join(f"{epochs:.3g}" for epochs in summary.epochs if epochs)
    return losses + (f"; data gone through {passes} times" if passes else "")


def _table(summary: Summary) -> Table:
    """Measured beside predicted, where anything was."""
    rows = _rows(summary)
    table = table_of(_COLUMNS, rows)
    return table if any(row["predicted"] for row in rows) else table.without("predicted")


def _rows(summary: Summary) -> list[dict[str, str]]:
    rates = summary.tokens_per_s and summary.tokens_per_s / summary.world_size
    waits = summary.data_wait_share
    found = [
        ("step", _duration(summary.step_s), _duration(summary.predicted_step_s)),
        ("memory", format_bytes(summary.memory_bytes), _bytes(summary.predicted_bytes)),
        ("tokens/s a device", format_number(rates) if rates else "", ""),
        ("MFU", f"{100 * summary.mfu:.1f}%" if summary.mfu is not None else "", ""),
        ("wait for data", f"{100 * waits:.1f}%" if waits is not None else "", ""),
        ("to the first step", _duration(summary.first_step_s), ""),
    ]
    return [
        dict(zip(("what", "measured", "predicted"), row, strict=True)) for row in found if row[1]
    ]


def _checkpoints(summary: Summary, out: str) -> str:
    if not summary.checkpoints:
        return f"no checkpoint was written; metrics in {out}/metrics.jsonl"
    stall = format_duration(summary.checkpoint_stall_s)
    count = len(summary.checkpoints)
    several = f"{count} checkpoints, the last" if count > 1 else "1 checkpoint,"
    return (
        f"{several} {out}/step-{summary.checkpoints[-1]}, "
        f"held training up for {stall}; metrics in {out}/metrics.jsonl"
    )


def _next(summary: Summary, out: str) -> str:
    if summary.ended != "done":
        return "next: the same command with --resume"
    if not summary.checkpoints and not summary.resumed_from:
        return "next: the same command without --no-save-last, which keeps what was trained"
    if not summary.checkpoints:
        return f"next: meshwright train ... --out {out} --resume --steps {2 * summary.steps}"
    return f"next: meshwright export {out}/step-{summary.checkpoints[-1]} -o hf/"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _duration(value_s: float | None) -> str:
    return "" if value_s is None else format_duration(value_s)


def _bytes(value_bytes: float | None) -> str:
    return "" if value_bytes is None else format_bytes(value_bytes)
