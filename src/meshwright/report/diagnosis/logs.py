"""What other records than traces of devices say: pipelines, memory, NCCL, metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.table import Column, table_of
from meshwright.base.units import format_bytes
from meshwright.base.words import plural
from meshwright.diagnose.logs.beside import PEAK
from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.metrics import metrics_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.base.table import Table
    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.logs.noun import MemorySnapshot, NcclLog
    from meshwright.diagnose.pipeline.noun import Pipeline, Worker
    from meshwright.report.page import Block

_MOST_WORKERS, _MOST_SITES, _MOST_WARNINGS = 12, 5, 5


def log_blocks(evidence: Evidence) -> Iterator[Block]:
    """A section for each record that there is, each after a blank line."""
    if evidence.pipeline is not None:
        yield from ("", *pipeline_blocks(evidence.pipeline))
    for snapshot in evidence.memory:
        yield from ("", *memory_blocks(snapshot))
    for log in evidence.nccl:
        yield from ("", *nccl_blocks(log))
    if evidence.metrics:
        yield from ("", *metrics_blocks(evidence.metrics))


def pipeline_blocks(found: Pipeline) -> Iterator[Block]:
    """How idle it is, against what its schedule needs, and its slowest workers."""
    yield (
        f"pipeline: {plural(found.p, 'stage')}, {found.m:,} micro-batch{'es' * (found.m != 1)}"
        + (f", {found.v} chunks each" if found.v > 1 else "")
        + (f", {found.dp} replicas" if found.dp > 1 else "")
        + f"; idle {found.mean_idle_pct_of_step:.1f}% of a step where the schedule needs "
        f"{found.ideal_bubble_pct:.1f}%; the slowest stage computes "
        f"{found.stage_max_over_mean:.2f} times the mean"
    )
    if found.slowdown is not None:
        yield f"a step takes {found.slowdown:.2f} times what it would with even operations"
    workers = sorted(found.by_worker, key=lambda w: -w.over_median)
    columns = (
        Column(key="pp", title="stage", align="right"),
        Column(key="dp", title="replica", align="right"),
        Column(key="compute", title="compute", align="right"),
        Column(key="over", title="of the median", align="right"),
        Column(key="idle", title="idle", align="right"),
    )
    yield table_of(columns, [_worker(w) for w in workers[:_MOST_WORKERS]])
    if len(workers) > _MOST_WORKERS:
        yield f"and {len(workers) - _MOST_WORKERS:,} more that are nearer to the median"


def _worker(one: Worker) -> dict[str, str]:
    return {
        "pp": str(one.pp),
        "dp": str(one.dp),
        "compute": figures.duration(one.compute_us),
        "over": f"{one.over_median:.2f}",
        "idle": f"{one.idle_pct:.1f}%",
    }


def memory_blocks(found: MemorySnapshot) -> Iterator[Block]:
    """The peak by category and by place in the code."""
    yield (
        f"memory of device {found.device} in {figures.path(found.file)}: at most "
        f"{format_bytes(found.peak_bytes)} allocated, {format_bytes(found.reserved_bytes)} "
        f"reserved then ({100 * found.fragmentation:.1f}% of it unused)"
        + (f", {figures.duration(found.peak_at_us)} into the record" if found.peak_at_us else "")
        + (f"; {plural(found.retries, 'retry')}" if found.retries == 1 else "")
        + (f"; {found.retries:,} retries" if found.retries > 1 else "")
    )
    yield _categories(found)
    for site, size in found.by_site[:_MOST_SITES]:
        yield f"  {format_bytes(size)}  {figures.name(site, 90)}"


def _categories(found: MemorySnapshot) -> Table:
    """The peak by category, beside the prediction where there is a plan."""
    sizes = sorted(found.by_category.items(), key=lambda item: -item[1])
    named = dict(sizes)
    absent = [name for name in found.predicted_bytes if name not in named and name != PEAK]
    every = [*sizes, *((name, 0) for name in absent), (PEAK, found.peak_bytes)]
    rows = [
        {
            "what": figures.line(name),
            "size": format_bytes(size),
            "share": figures.share(size / found.peak_bytes) if found.peak_bytes else "",
            "predicted": format_bytes(told) if (told := found.predicted_bytes.get(name)) else "",
        }
        for name, size in every
    ]
    columns = [
        Column(key="what", title="at the peak"),
        Column(key="size", title="size", align="right"),
        Column(key="share", title="share", align="right"),
    ]
    if found.predicted_bytes:
        columns.append(Column(key="predicted", title="predicted", align="right"))
    return table_of(tuple(columns), rows)


def nccl_blocks(found: NcclLog) -> Iterator[Block]:
    """What NCCL found, what was set, and what it warns of."""
    hosts = plural(len(found.hosts), "host")
    yield (
        f"NCCL {figures.line(found.version)} in {figures.path(found.file)}: "
        f"{plural(len(found.communicators), 'communicator')} on {hosts}, network "
        f"{figures.line(found.network) or 'unknown'}"
    )
    if found.settings:
        yield "  set: " + ", ".join(
            f"{figures.line(k)}={figures.line(v)}" for k, v in found.settings.items()
        )
    for warning in found.warnings[:_MOST_WARNINGS]:
        yield f"  warning: {figures.name(warning, 100)}"
    if len(found.warnings) > _MOST_WARNINGS:
        yield f"  and {len(found.warnings) - _MOST_WARNINGS:,} more warnings"
