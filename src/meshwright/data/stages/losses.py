"""What became of the documents of one source, for the error of a build that cannot go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.words import plural
from meshwright.data.reasons import CODES, REASONS
from meshwright.data.stages.decide import dropped_of
from meshwright.data.stages.scanned import scanned

if TYPE_CHECKING:
    from meshwright.data.stages.layout import Job


def losses_of(job: Job, source: int) -> dict[str, int]:
    """How many documents of a source were kept (under "") and dropped for each reason."""
    counts = np.zeros(len(REASONS), dtype=np.int64)
    mine = np.array([found.source == source for found in job.inputs], dtype=np.bool_)
    for unit in job.units:
        found = scanned(job, unit.number)
        reason = found.documents["reason"].astype(np.int64)
        dropped = dropped_of(job, unit.number)
        reason[found.survivors["row"][dropped["survivor"]]] = dropped["reason"]
        counts += np.bincount(reason[mine[found.documents["input"]]], minlength=len(REASONS))
    return {reason: int(counts[code]) for reason, code in CODES.items() if counts[code]}


def losses_note(job: Job, source: int) -> str:
    """The same as a small table, the commonest reason first."""
    counts = losses_of(job, source)
    kept, name = counts.pop("", 0), job.build.sources[source].name
    lines = [
        f"{name}: {plural(kept + sum(counts.values()), 'document')} read, {kept:,} kept"
        + (", before validation is held out" if kept and job.build.validation else "")
    ]
    width = max((len(reason) for reason in counts), default=0)
    for reason, count in sorted(counts.items(), key=lambda pair: -pair[1]):
        lines.append(f"{count:>9,}  {reason:<{width}}  {REASONS[reason]}")
    return "\n".join(lines)
