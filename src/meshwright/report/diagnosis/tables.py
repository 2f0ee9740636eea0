"""Tables of a diagnosis: the split of the step, ranks, collectives, kernels."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.base.table import Column, Row, Table, table_of
from meshwright.diagnose.causes.case import steps_of
from meshwright.diagnose.ranks import numbers_of, rank_step_us
from meshwright.diagnose.split.collectives import label_of
from meshwright.report.diagnosis import figures
from meshwright.report.diagnosis.split import rank_parts, whose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.diagnose.across.noun import Across
    from meshwright.diagnose.diagnosis import Evidence
    from meshwright.diagnose.rank import Collective, Rank
    from meshwright.report.diagnosis.split import Split

MOST_RANKS, MOST_COLLECTIVES, MOST_KERNELS, MOST_WHAT_IFS = 12, 12, 8, 10
_LEAST_GAIN = 0.005  # of a step
_UNITS = ((1e7, "s", 1e6), (1e3, "ms", 1e3), (0.0, "us", 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLine:
    """One rank in the table of ranks; times of one step in microseconds, None unknown.

    `wait_us` is what it waits for others in collectives, `waited_for_us` what they wait for it.
    """

    rank: int | None
    file: str
    step_us: float | None
    compute_us: float
    communication_us: float
    copies_us: float
    idle_us: float
    wait_us: float | None = None
    times_last: int | None = None
    waited_for_us: float = 0.0
    because: str = ""
    principal: str = ""


def unit_of(step_us: float) -> tuple[str, float]:
    """The unit in which the parts of a step are printed, and its microseconds."""
    return next((name, size) for least, name, size in _UNITS if step_us >= least)


def split_table(split: Split) -> Table:
    """Parts of the step, whose printed times and shares sum to the printed whole.

    Parts that would print as nothing are not among them.
    """
    unit, size = unit_of(split.step_us)
    times = figures.rounded([part.us / size for part in split.parts], 2)
    shares = figures.rounded([100 * part.share for part in split.parts], 1)
    columns = (
        Column(key="kind", title="where a step goes" if split.is_step else "where the time goes"),
        Column(key="name", title=""),
        Column(key="time", title=unit, align="right"),
        Column(key="share", title="share", align="right"),
    )
    rows, seen = [], ""
    for part, time, share in zip(split.parts, times, shares, strict=True):
        if not (time + share).strip("0."):
            continue
        kind = part.kind if part.kind != seen else ""
        seen = part.kind
        cells = {"kind": kind, "name": figures.name(part.name), "time": time, "share": f"{share}%"}
        rows.append(Row(cells=cells))
    whole = f"{split.step_us / size:,.2f}"
    rows.append(Row(cells={"kind": "sum", "name": "", "time": whole, "share": "100.0%"}))
    return Table(columns=columns, rows=tuple(rows))


def rank_lines(evidence: Evidence) -> list[RankLine]:
    """Every rank: those first that the others wait for most, then those that compute least."""
    across = evidence.across
    places = {n: i for i, n in enumerate(across.ranks)} if across else {}
    late = {s.rank: s for s in across.stragglers} if across else {}
    lines = []
    for number, rank in zip(numbers_of(evidence.ranks), evidence.ranks, strict=True):
        line = _line(rank)
        place = places.get(number)
        if across is not None and place is not None:
            wait_us = across.wait_us_by_rank[place] / steps_of(rank)
            line = replace(line, wait_us=wait_us, times_last=across.times_last[place])
        if number in late:
            found = late[number]
            waited_us = found.waited_for_us / steps_of(rank)
            line = replace(line, waited_for_us=waited_us, because=found.because)
        lines.append(line)
    return sorted(lines, key=_badness)


def _line(rank: Rank) -> RankLine:
    parts = rank_parts(rank)
    return RankLine(
        rank=rank.rank,
        file=rank.file,
        step_us=sum(parts.values()) if parts else rank.step_time_us_median,
        compute_us=parts.get("compute", 0.0),
        communication_us=parts.get("communication", 0.0),
        copies_us=parts.get("copies", 0.0),
        idle_us=parts.get("idle", 0.0),
        principal=rank.principal,
    )


def _badness(line: RankLine) -> tuple[float, float, float]:
    busy = line.compute_us / line.step_us if line.step_us else 0.0
    return -line.waited_for_us, busy, line.rank if line.rank is not None else 1 << 40


def ranks_table(evidence: Evidence) -> tuple[Table, int]:
    """The worst ranks, and how many are not in it."""
    lines = rank_lines(evidence)
    step = fmean([line.step_us for line in lines if line.step_us] or [0.0])
    unit, size = unit_of(step)
    titles = {
        "rank": "rank",
        "step": f"step {unit}",
        "compute": "compute",
        "communication": "comm. exposed",
        "copies": "copies",
        "idle": "idle",
        "wait": f"waits for others {unit}",
        "last": "came last",
        "waited_for": f"all others wait {unit}",
        "because": "because of",
        "principal": "mostly loses to",
    }
    rows = [_rank_row(line, size) for line in lines[:MOST_RANKS]]
    left = ("rank", "because", "principal")
    columns = [
        Column(key=k, title=t, align="left" if k in left else "right", optional=k == "copies")
        for k, t in titles.items()
        if any(row[k] for row in rows)
    ]
    return table_of(columns, rows), len(lines) - len(rows)


def _rank_row(line: RankLine, size: float) -> dict[str, str]:
    step = line.step_us or 0.0
    parts = {
        "compute": line.compute_us,
        "communication": line.communication_us,
        "copies": line.copies_us,
        "idle": line.idle_us,
    }
    shares = {k: figures.share(us / step) if step and us else "" for k, us in parts.items()}
    return {
        "rank": str(line.rank) if line.rank is not None else figures.name(line.file, 28),
        "step": f"{step / size:,.2f}" if step else "",
        **shares,
        "wait": "" if line.wait_us is None else f"{line.wait_us / size:,.2f}",
        "last": "" if line.times_last is None else f"{line.times_last:,}",
        "waited_for": f"{line.waited_for_us / size:,.2f}" if line.waited_for_us else "",
        "because": line.because.replace("_", " "),
        "principal": figures.name(line.principal.replace("_", " ")),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLine:
    """Collectives of one kind, axis, size over ranks: means over those that have them.

    Times are microseconds over all that was traced. `rate_GBps` is the rate on the bus, from the
    last to arrive where `is_transfer`, else from the fastest instance of a rank.
    """

    axis: str
    collective: str
    group_size: int
    bytes: int | None
    calls: float
    sum_us: float
    exposed_us: float
    rate_GBps: float | None  # noqa: N815 - the unit
    is_transfer: bool


def collective_lines(evidence: Evidence) -> list[CollectiveLine]:
    """Collectives by axis (or group), kind and size, those with most exposed time first."""
    found: dict[tuple[str, str, int, int | None], list[Collective]] = defaultdict(list)
    for rank in evidence.ranks:
        for one in rank.collectives:
            label = label_of(one.collective, one.kernel)
            found[whose(one), label, one.group_size, one.bytes].append(one)
    lines = [_merged(key, every, evidence) for key, every in found.items()]
    return sorted(lines, key=lambda line: (-line.exposed_us, -line.sum_us, line.axis))


def _merged(
    key: tuple[str, str, int, int | None], every: Sequence[Collective], evidence: Evidence
) -> CollectiveLine:
    axis, collective, size, count_bytes = key
    ranks = max(1, len(evidence.ranks))
    link = _link_rate(evidence.across, axis, collective, count_bytes)
    own = max((c.busbw_GBps_at_min for c in every if c.busbw_GBps_at_min), default=None)
    return CollectiveLine(
        axis=axis,
        collective=collective,
        group_size=size,
        bytes=count_bytes,
        calls=sum(c.count for c in every) / ranks,
        sum_us=sum(c.sum_us for c in every) / ranks,
        exposed_us=sum(c.exposed_us for c in every) / ranks,
        rate_GBps=own if link is None else link,
        is_transfer=link is not None,
    )


def _link_rate(across: Across | None, axis: str, collective: str, size: int | None) -> float | None:
    """The slowest rate of the groups of an axis at a size, from the last to arrive."""
    rates = [
        link.busbw_GBps
        for link in (across.links if across else ())
        if link.collective == collective and link.bytes == size and axis in (link.axis, link.group)
    ]
    return min(rates, default=None)


def collectives_table(evidence: Evidence, *, most: int = MOST_COLLECTIVES) -> tuple[Table, int]:
    """The collectives with most exposed time, and how many are not in the table."""
    from meshwright.base.units import format_bytes, format_number

    lines = collective_lines(evidence)
    rows = [
        {
            "axis": figures.name(line.axis, 32) or "-",
            "collective": figures.name(line.collective, 32),
            "ranks": str(line.group_size) if line.group_size > 0 else "",
            "bytes": "" if line.bytes is None else format_bytes(line.bytes),
            "calls": _calls(line.calls),
            "sum": figures.duration(line.sum_us),
            "exposed": figures.duration(line.exposed_us),
            "rate": ""
            if line.rate_GBps is None
            else f"{format_number(line.rate_GBps)}{'' if line.is_transfer else ' *'}",
        }
        for line in lines[:most]
    ]
    columns = (
        Column(key="axis", title="axis or group"),
        Column(key="collective", title="collective"),
        Column(key="ranks", title="ranks", align="right"),
        Column(key="bytes", title="size", align="right"),
        Column(key="calls", title="calls", align="right"),
        Column(key="sum", title="time, all steps", align="right"),
        Column(key="exposed", title="exposed", align="right"),
        Column(key="rate", title="bus GB/s", align="right", optional=True),
    )
    return table_of(columns, rows), len(lines) - len(rows)


def _calls(mean: float) -> str:
    """Calls of a rank, which may be a mean: "2,020", "5.25"."""
    return f"{mean:,.0f}" if mean >= 10 else f"{mean:.3g}"


def axes_table(across: Across) -> Table:
    """Communication of each axis in one step, waiting apart from transfer."""
    rows = [
        {
            "axis": figures.name(one.axis, 32) or ("all" if len(across.axes) == 1 else "other"),
            "total": figures.duration(one.total_us),
            "wait": figures.duration(one.wait_us),
            "transfer": figures.duration(one.transfer_us),
            "exposed": figures.duration(one.exposed_us),
        }
        for one in across.axes
    ]
    columns = (
        Column(key="axis", title="communication of a step on"),
        Column(key="total", title="kernel time", align="right"),
        Column(key="wait", title="waiting", align="right"),
        Column(key="transfer", title="transfer", align="right"),
        Column(key="exposed", title="exposed", align="right"),
    )
    return table_of(columns, rows)


def what_ifs(evidence: Evidence) -> dict[str, float]:
    """By what would be otherwise, the share of the step that it would then take.

    Over all ranks where they could be replayed together, else of the median rank.
    """
    joined = evidence.across.what_if_us if evidence.across is not None else {}
    whole = joined.get(AS_MEASURED)
    if whole:
        return {name: us / whole for name, us in joined.items() if name != AS_MEASURED}
    found: dict[str, list[float]] = defaultdict(list)
    for rank in evidence.ranks:
        path = rank.path
        step_us = (path.step_us or rank_step_us(rank)) if path is not None else 0.0
        for name, us in path.what_if_us.items() if path is not None and step_us else ():
            found[f"{name} free"].append(us / step_us)
    pipeline = evidence.pipeline
    if not found and pipeline is not None and pipeline.step_span_us_median:
        return {n: us / pipeline.step_span_us_median for n, us in pipeline.what_if_us.items()}
    return {name: median(shares) for name, shares in found.items()}


AS_MEASURED = "as measured"  # what replays are held against


def what_if_table(evidence: Evidence, step_us: float) -> Table:
    """What a step would take if one thing at a time were otherwise, the greatest gain first."""
    found = sorted(what_ifs(evidence).items(), key=lambda item: item[1])
    rows = [
        {
            "name": figures.name(name.replace("_", " ")),
            "step": figures.duration(share * step_us),
            "gain": figures.share(1 - share),
        }
        for name, share in found[:MOST_WHAT_IFS]
        if share < 1 - _LEAST_GAIN
    ]
    columns = (
        Column(key="name", title="what if"),
        Column(key="step", title="a step would take", align="right"),
        Column(key="gain", title="less", align="right"),
    )
    return table_of(columns, rows)


def kernel_totals(ranks: Iterable[Rank]) -> list[tuple[str, str, float, float]]:
    """Name, class, mean microseconds and calls a rank of the kernels that take longest."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    count = 0
    for rank in ranks:
        count += 1
        for one in rank.top_kernels:
            sums[one.name, one.kind][0] += one.sum_us
            sums[one.name, one.kind][1] += one.count
    found = [(n, k, us / count, calls / count) for (n, k), (us, calls) in sums.items()]
    return sorted(found, key=lambda one: -one[2])


def kernels_table(ranks: Sequence[Rank], *, most: int = MOST_KERNELS, longest: int = 60) -> Table:
    """The kernels that take longest."""
    total = fmean([rank.kernel_time_sum_us for rank in ranks] or [0.0])
    rows = [
        {
            "name": figures.kernel(name, longest),
            "kind": kind.replace("_", " "),
            "time": figures.duration(us),
            "calls": _calls(calls),
            "share": figures.share(us / total) if total else "",
        }
        for name, kind, us, calls in kernel_totals(ranks)[:most]
    ]
    columns = (
        Column(key="name", title="kernel"),
        Column(key="kind", title="class"),
        Column(key="time", title="time, all steps", align="right"),
        Column(key="calls", title="calls", align="right"),
        Column(key="share", title="of kernels", align="right"),
    )
    return table_of(columns, rows)
