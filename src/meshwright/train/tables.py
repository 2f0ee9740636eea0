"""A file of pipeline operations that replaces the schedule of a plan.

Comma-separated: a line for each pipeline rank, a cell for each operation in its order, as "2F0":
stage, kind and micro-batch. Kinds are F forward, B the whole backward pass, I and W its two parts
(gradients of inputs, of weights). Empty cells are passed over. torch writes and reads the same
(torch 2.13, torch/distributed/pipelining/schedules.py, `_dump_csv`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.pattern import pattern
from meshwright.base.words import shown
from meshwright.cost.schedules import definition_of
from meshwright.cost.schedules.placement import stage_of as stage_at
from meshwright.plan.stages import chunks_per_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.plan.plan import Plan

    Operation = tuple[int, str, int]
    Table = tuple[tuple[Operation, ...], ...]

_CELL = pattern(r"(\d{1,6})([FBIW])(\d{1,9})\Z")
_SHOWN = 8


def read_table(path: str | Path, plan: Plan, *, microbatches: int) -> Table:
    """The operations by rank; InvalidInput with everything that makes the file no such table."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise MeshwrightError(
            f"cannot read {str(path)!r}: {reason}", hint="name a .csv of operations"
        ) from None
    rows = [line for line in lines if line.strip()]
    findings = [
        finding
        for number, line in enumerate(rows, start=1)
        for finding in _unreadable(str(path), number, line)
    ]
    if findings:
        raise InvalidInput(findings[:_SHOWN])
    table = tuple(tuple(_operations(line)) for line in rows)
    wrong = [*_misplaced(str(path), table, plan), *_uncounted(str(path), table, microbatches)]
    if wrong:
        raise InvalidInput(wrong[:_SHOWN])
    return table


def _cells(line: str) -> Iterator[str]:
    return (cell.strip() for cell in line.split(",") if cell.strip())


def _operations(line: str) -> Iterator[Operation]:
    for cell in _cells(line):
        found = _CELL.match(cell)
        if found:
            yield int(found[1]), found[2], int(found[3])


def _unreadable(file: str, number: int, line: str) -> Iterator[Finding]:
    for cell in _cells(line):
        if not _CELL.match(cell):
            message = f"{shown(cell)} is no operation"
            hint = "stage, F, B, I or W, and micro-batch, as 2F0"
            yield Finding(message=message, file=file, line=number, value=cell, hint=hint)


def _misplaced(file: str, table: Table, plan: Plan) -> Iterator[Finding]:
    """Ranks that are not there, and stages that lie elsewhere."""
    pp = int(plan.pp)
    if len(table) != pp:
        message = f"{len(table)} lines are not the {pp} ranks of the pipeline"
        yield Finding(message=message, file=file, hint=f"a line for each of {pp} ranks")
        return
    placement = definition_of(int(plan.schedule), vpp=int(plan.vpp)).placement
    for rank, row in enumerate(table):
        held = {
            int(stage_at(placement, pp=pp, rank=rank, chunk=chunk))
            for chunk in range(int(chunks_per_rank(plan)))
        }
        for stage in sorted({stage for stage, _, _ in row} - held):
            stages = ", ".join(map(str, sorted(held)))
            message = f"rank {rank} does not hold stage {stage}, but {stages}"
            hint = "see plan.vpp and plan.schedule, which place the stages"
            yield Finding(message=message, file=file, line=rank + 1, value=stage, hint=hint)


def _uncounted(file: str, table: Table, microbatches: int) -> Iterator[Finding]:
    """Micro-batches that a stage does not pass exactly once in each direction."""
    counts = Counter(operation for row in table for operation in row)
    stages = sorted({stage for stage, _, _ in counts})
    for stage in stages:
        for micro in range(microbatches):
            forward, whole = counts[stage, "F", micro], counts[stage, "B", micro]
            inputs, weights = counts[stage, "I", micro], counts[stage, "W", micro]
            if forward != 1 or whole + inputs != 1 or weights != inputs:
                message = f"stage {stage} does not pass micro-batch {micro} once each way"
                hint = f"one F, and one B or one I and one W, of 0 to {microbatches - 1}"
                yield Finding(message=message, file=file, value=micro, hint=hint)
    for stage, _, micro in sorted(counts):
        if micro >= microbatches:
            message = f"stage {stage} has micro-batch {micro} of {microbatches}"
            yield Finding(message=message, file=file, value=micro, hint=f"0 to {microbatches - 1}")
