"""The answer of `meshwright plan` as a page, and as a record for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Row, Table
from meshwright.base.units import GIB, format_count, format_duration, format_number
from meshwright.model.flops import CONVENTIONS
from meshwright.plan.plan import PEAK_NAME, Precision
from meshwright.plan.words import plan_words
from meshwright.report.findings import finding_lines, finding_record
from meshwright.report.headline import adapter_words, assumed_line, job_record, read_line
from meshwright.search.result import describe, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.base.finding import Finding
    from meshwright.report.page import Block
    from meshwright.search.result import Candidate, Miss, Relaxation, Result, Swing

_SHOWN_RULES = 8
_COLUMNS = (
    Column(key="number", title="", align="right"),
    Column(key="num_gpus", title="GPUs", align="right"),
    Column(key="mesh", title="mesh"),
    Column(key="micro_batch_size", title="mbs", align="right"),
    Column(key="schedule", title="schedule"),
    Column(key="recompute", title="recompute"),
    Column(key="sharding", title="sharding"),
    Column(key="peak_gib", title="peak GiB", align="right", optional=True),
    Column(key="needs_gib", title="needs GiB", align="right"),
    Column(key="step_s", title="step s", align="right"),
    Column(key="tokens_per_s_per_gpu", title="tok/s/GPU", align="right"),
    Column(key="mfu", title="MFU %", align="right"),
    Column(key="days_per_trillion_tokens", title="days/Ttok", align="right", optional=True),
    Column(key="dollars_per_trillion_tokens", title="$/Ttok", align="right", optional=True),
    Column(key="limited_by", title="limited by", optional=True),
)


def result_page(
    result: Result, *, written: str = "", refused: Sequence[Finding] = ()
) -> list[Block]:
    """Everything that `plan` prints.

    `written` is the file that keeps the best plan, if any; `refused` is what the rules have against
    the pins themselves, for a search that found nothing.
    """
    page: list[Block] = [
        read_line(result.job),
        assumed_line((_adapters(result), *result.assumptions, *result.job.model.assumptions)),
        "",
    ]
    page += _found(result) if result.rows else _nothing(result, refused)
    if result.candidates:
        page.append(census_line(result))
    if result.rows and result.objective == "throughput":  # both compare step times on all GPUs
        page += [miss_line(miss) for miss in result.misses[:1]]
        page += [swing_line(swing) for swing in result.sensitivity]
    page += [f"note: {note}" for note in result.notes]
    return [*page, next_line(result, written=written, refused=refused)]


def _adapters(result: Result) -> str:
    return adapter_words(result.rows[0].plan) if result.rows else ""


def candidate_table(rows: tuple[Candidate, ...], *, num_gpus: int) -> Table:
    """The best plans, one a row, the first marked; GPUs are shown where a plan leaves some idle."""
    cells = [_cells(number, row) for number, row in enumerate(rows, start=1)]
    if {row.job.cluster.num_gpus for row in rows} != {num_gpus}:
        counts = (f"{row.job.cluster.num_gpus:,}" for row in rows)
        cells = [c | {"num_gpus": count} for c, count in zip(cells, counts, strict=True)]
    table_rows = tuple(Row(cells=c, chosen=c["number"] == "1") for c in cells)
    used = [c for c in _COLUMNS if any(row.cells.get(c.key) for row in table_rows)]
    return Table(columns=tuple(used), rows=table_rows)


def census_line(result: Result) -> str:
    """How many candidates each rule refused: "rejected 1,812 of 1,960: MEM 1,203, BAT002 377"."""
    refused = sorted(result.rejected.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{name} {count:,}" for name, count in refused[:_SHOWN_RULES] if count]
    if len(refused) > _SHOWN_RULES:
        words.append(f"{len(refused) - _SHOWN_RULES} more rules")
    total = sum(result.rejected.values())
    return f"rejected {total:,} of {result.candidates:,} plans: {', '.join(words) or 'none'}"


def miss_line(miss: Miss) -> str:
    """The plan that came closest to fitting, and what would admit it."""
    return f"closest miss: {describe(miss.job.plan)}; {miss.remedy}"


def swing_line(swing: Swing) -> str:
    """An assumption that would change the winner."""
    change = f"{swing.assumption} (at {swing.factor:g} times)"
    cost = f"the first plan would be {100 * swing.regret:.1f}% slower"
    return f"depends on: {change}, else {describe(swing.winner)} wins and {cost}"


def next_line(result: Result, *, written: str, refused: Sequence[Finding]) -> str:
    """The command to type next."""
    if result.rows and written:
        return f"next: meshwright explain {written} memory"
    if result.rows:
        return (
            "next: add --write plan.toml to keep the best plan, then meshwright predict plan.toml"
        )
    if result.interrupted:
        return "next: the same command again, or fewer choices by --pin"
    if result.relaxations:
        return f"next: leave out the {result.relaxations[0].constraint}"
    codes = [finding.code for finding in refused]
    codes += [name for name in result.rejected if name != "memory" and not codes]
    if codes and "memory" not in result.rejected:
        return f"next: meshwright explain {codes[0]}"
    enough = result.minimum_gpus
    more = f"more --nodes, {enough:,} GPUs or beyond" if enough else "more --nodes"
    return f"next: {more}, or a GPU with more memory"


def result_record(result: Result, *, refused: Sequence[Finding] = ()) -> dict[str, Any]:
    """The whole result for JSON, units in the key names."""
    return {
        "job": job_record(result.job),
        "objective": result.objective,
        "assumptions": list(result.assumptions),
        "plans": [_candidate_record(row) for row in result.rows],
        "frontier": [_candidate_record(row) for row in result.frontier],
        "candidates": result.candidates,
        "costed": result.costed,
        "feasible": result.feasible,
        "rejected": dict(result.rejected),
        "misses": [_miss_record(miss) for miss in result.misses],
        "relaxations": [
            {"constraint": r.constraint, "admits": r.admits} for r in result.relaxations
        ],
        "refused_pins": [finding_record(finding) for finding in refused],
        "minimum_gpus": result.minimum_gpus,
        "sensitivity": [
            {"assumption": s.assumption, "factor": s.factor, "winner": describe(s.winner)}
            for s in result.sensitivity
        ],
        "limit_bytes": result.limit_bytes,
        "search_cpu_s": result.seconds,
        "interrupted": result.interrupted,
        "notes": list(result.notes),
    }


def _found(result: Result) -> list[Block]:
    best = result.rows[0].prediction
    interval = f"{format_number(best.low_s)} to {format_number(best.high_s)} s"
    lines: list[Block] = [
        candidate_table(result.rows, num_gpus=result.job.cluster.num_gpus),
        "",
        f"best: {interval} a step with 90% confidence; "
        f"a GPU has {format_number(result.limit_bytes / GIB)} GiB",
        f"MFU: {mfu_words(result.rows[0])}",
    ]
    if result.job.workload.train_tokens is not None:
        lines.append(run_line(result.rows[0], result.job.workload.train_tokens))
    return lines


def mfu_words(candidate: Candidate) -> str:
    """What the MFU counts, and the rate that it is a share of."""
    convention = candidate.prediction.mfu_convention
    name = PEAK_NAME[Precision(int(candidate.plan.precision))]
    rates = candidate.job.cluster.gpu.peak_flops
    peak = rates.get(name) or max(rates.values())
    share = f"of {format_number(peak / 1e12)} TFLOP/s dense {name}"
    return f"{CONVENTIONS[convention].description} ({convention}), {share}"


def run_line(candidate: Candidate, tokens: float) -> str:
    """How long the whole run takes, and what it costs where the GPU has a price."""
    trillions = tokens / 1e12
    duration = format_duration(candidate.days_per_trillion_tokens * trillions * 86400)
    words = f"the whole run of {format_count(tokens)} tokens: {duration}"
    dollars = candidate.dollars_per_trillion_tokens
    return words if dollars is None else f"{words}, ${format_number(dollars * trillions)}"


def _nothing(result: Result, refused: Sequence[Finding]) -> list[Block]:
    """What stands in the way, when no plan is left."""
    if result.interrupted:
        return ["stopped before a plan that fits was found", ""]
    lines: list[Block] = ["no plan fits"]
    lines += [f"  {line}" for finding in refused for line in finding_lines(finding)]
    lines += [_relaxation_line(relaxation) for relaxation in result.relaxations]
    lines += [f"  nearest: {miss_line(miss).split(': ', 1)[1]}" for miss in result.misses]
    if result.minimum_gpus is not None:
        lines.append(f"  {result.minimum_gpus:,} GPUs of this kind would do")
    return [*lines, ""]


def _relaxation_line(relaxation: Relaxation) -> str:
    example = f", such as {describe(relaxation.example)}" if relaxation.example else ""
    return f"  without the {relaxation.constraint}: {relaxation.admits:,} plans fit{example}"


def _cells(number: int, candidate: Candidate) -> dict[str, str]:
    """One row of the table as text."""
    record = summary(candidate)
    dollars = record["dollars_per_trillion_tokens"]
    return {
        "number": str(number),
        "mesh": record["mesh"],
        "micro_batch_size": str(record["micro_batch_size"]),
        "schedule": record["schedule"],
        "recompute": record["recompute"],
        "sharding": record["sharding"],
        "peak_gib": f"{record['peak_gib']:.1f}",
        "needs_gib": f"{candidate.prediction.required_bytes / GIB:.1f}",
        "step_s": format_number(record["step_s"]),
        "tokens_per_s_per_gpu": format_number(record["tokens_per_s_per_gpu"]),
        "mfu": f"{100 * record['mfu']:.1f}",
        "days_per_trillion_tokens": format_number(record["days_per_trillion_tokens"]),
        "dollars_per_trillion_tokens": "" if dollars is None else format_number(dollars),
        "limited_by": str(record["limited_by"]),
    }


def _candidate_record(candidate: Candidate) -> dict[str, Any]:
    return summary(candidate) | {
        "needs_gib": candidate.prediction.required_bytes / GIB,
        "num_gpus": candidate.job.cluster.num_gpus,
        "plan": plan_words(candidate.plan, every=True),
    }


def _miss_record(miss: Miss) -> dict[str, Any]:
    return {
        "plan": plan_words(miss.job.plan),
        "upper_gib": miss.upper_bytes / GIB,
        "over_gib": miss.over_bytes / GIB,
        "step_s": miss.step_time_s,
        "remedy": miss.remedy,
    }
