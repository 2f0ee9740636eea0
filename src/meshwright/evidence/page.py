"""The accuracy page: tables of a summary in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from meshwright.evidence.errors import Errors, Judgement
    from meshwright.evidence.ranking import Ranking
    from meshwright.evidence.summary import Coverage, Memory, Summary

INTRODUCTION = """\
# Accuracy

Predictions against published measured runs. The rows are those of the packaged runs file that are
complete and pass their own arithmetic. Every prediction is made from a row's settings alone; the
measured columns are read only here, afterwards. Rerun with `meshwright validate --write-docs`.

A relative error is predicted / measured - 1; "bias" is its mean, the other figures are of absolute
values. The same plan measured twice by different teams differs by 5% in the median and 23% at the
90th percentile, which is the floor for any predictor.
"""

Cells = tuple[str, ...]


def accuracy_page(summary: Summary, left_out: Judgement | None = None) -> str:
    """The page as Markdown text."""
    sections = [
        INTRODUCTION,
        _goals(summary, left_out),
        _coverage(summary.coverage),
        _errors("Step time by source", "source", _by_source(summary.step_time)),
        _errors("Step time by hardware", "device", summary.by_hardware),
        _errors("Step time by parallel axis and feature", "rows with", summary.by_axis),
        _errors("Step time by software stack", "stack", summary.by_stack),
        *(_memory(kind, memory) for kind, memory in summary.memory.items()),
        _ranking(summary),
    ]
    if left_out is not None:
        title = "Step time of each source under a fit to the others"
        sections.append(_errors(title, "source left out", left_out.by_source))
    return "\n".join(sections)


def percent(value: float) -> str:
    """A share as percent with one digit, a dash when there is none."""
    return "-" if value != value else f"{100 * value:.1f}%"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned so that it reads as plain text too."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rule = tuple("-" * width for width in widths)
    return "".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line: the first cell to the left, figures to the right."""
    first, *others = cells
    padded = [first.ljust(widths[0])]
    padded += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
    return f"| {' | '.join(padded)} |\n"


def _by_source(judgement: Judgement | None) -> Mapping[str, Errors]:
    return {} if judgement is None else judgement.by_source


def _errors(title: str, key: str, groups: Mapping[str, Errors]) -> str:
    """A section with the errors of each group, the largest group first."""
    ordered = sorted(groups.items(), key=lambda item: -item[1].rows)
    head = (key, "rows", "median", "mean", "p90", "worst", "bias")
    rows = (
        (name, str(e.rows), *map(percent, (e.median, e.mean, e.p90, e.worst, e.bias)))
        for name, e in ordered
    )
    return f"## {title}\n\n{table(head, rows)}"


def overview(summary: Summary) -> str:
    """The page without its details: goals, errors by source, ranking."""
    parts = (
        _goals(summary, None),
        _errors("Step time by source", "source", _by_source(summary.step_time)),
        _ranking(summary),
    )
    return "\n".join(parts)


def _goals(summary: Summary, left_out: Judgement | None) -> str:
    """What was to be reached and what is."""
    rows = [*_time_goals(summary), *_memory_goals(summary), *_ranking_goals(summary.ranking)]
    if left_out is not None:
        mean = sum(e.mean for e in left_out.by_source.values()) / len(left_out.by_source)
        rows.append(("leave one source out: mean error", "16%", percent(mean)))
    return f"## Goals\n\n{table(('figure', 'goal', 'reached'), rows)}"


def _time_goals(summary: Summary) -> list[Cells]:
    time = summary.step_time
    rows: list[Cells] = [
        ("coverage of judged rows", "at least 90%", percent(summary.coverage.share))
    ]
    if time is None:
        return rows
    worst, biased = time.worst_source_name, time.worst_bias_name
    return [
        *rows,
        ("step time: median source", "8%", percent(time.median_source)),
        (f"step time: worst source of 20 rows ({worst})", "15%", percent(time.worst_source)),
        ("step time: pooled 90th percentile", "25%", percent(time.p90)),
        (f"step time: largest bias ({biased})", "8%", percent(time.worst_bias)),
        ("step time: inside the 90% interval", "80% to 95%", percent(summary.interval_coverage)),
    ]


def _memory_goals(summary: Summary) -> list[Cells]:
    memory = summary.memory.get("allocated")
    if memory is None:
        return []
    pooled, upper = memory.judgement.pooled, memory.bound
    rows: list[Cells] = [
        ("peak memory: median", "6%", percent(pooled.median)),
        ("peak memory: 90th percentile", "15%", percent(pooled.p90)),
    ]
    if upper is None:
        return rows
    return [
        *rows,
        ("peak memory above its bound", "2% of rows", percent(upper.exceeded)),
        ("bound above the estimate, median row", "12%", percent(upper.median_margin)),
    ]


def _ranking_goals(ranking: Ranking | None) -> list[Cells]:
    if ranking is None:
        return []
    return [
        ("ranking: regret of the median group", "5%", percent(ranking.median_regret)),
        ("ranking: regret of the worst group", "15%", percent(ranking.worst_regret)),
        ("ranking: Spearman's rho, median group", "0.9", f"{ranking.median_spearman:.2f}"),
    ]


def _coverage(coverage: Coverage) -> str:
    """How many rows are predicted, and why the rest are not."""
    reasons = [(reason, str(rows)) for reason, rows in coverage.reasons.items()]
    partial = [(reason, str(rows)) for reason, rows in coverage.partial_reasons.items()]
    parts = [
        "## Coverage\n",
        f"{coverage.predicted} of {coverage.judged} judged rows are predicted, and "
        f"{coverage.partial_predicted} of {coverage.partial} others (incomplete, or failing their "
        "own arithmetic), which are not judged.\n",
    ]
    if reasons:
        parts.append(table(("why a judged row is not predicted", "rows"), reasons))
    if partial:
        parts.append(table(("why another row is not predicted", "rows"), partial))
    return "\n".join(parts)


def _memory(kind: str, memory: Memory) -> str:
    """Errors of peak memory against one kind of figure."""
    section = _errors(f"Peak memory: {kind}", "source", memory.judgement.by_source)
    upper = memory.bound
    if upper is None:
        return section
    return (
        f"{section}\nThe upper bound is exceeded in {percent(upper.exceeded)} of {upper.rows} rows "
        f"and lies {percent(upper.median_margin)} above the estimate in the median row.\n"
    )


def _ranking(summary: Summary) -> str:
    """Regret and rank correlation by source."""
    head = ("source", "groups", "median regret", "worst regret", "worst group", "median rho")
    rows = [
        (
            source,
            str(r.groups),
            percent(r.median_regret),
            percent(r.worst_regret),
            r.worst_group.removeprefix(f"{source}: "),
            f"{r.median_spearman:.2f}",
        )
        for source, r in summary.ranking_by_source.items()
    ]
    text = (
        "Groups of at least three plans that differ by nothing else. Regret is how much longer the "
        "plan predicted fastest took than the fastest measured one.\n"
    )
    return f"## Ranking\n\n{text}\n{table(head, rows)}"
