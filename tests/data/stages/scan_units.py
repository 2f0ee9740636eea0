"""Scan units written by hand, for tests of the stages that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard

from meshwright.data.dedup.exact import exact_keys
from meshwright.data.dedup.minhash import band_keys, key_columns
from meshwright.data.documents import documents_of
from meshwright.data.settings import Build, Dedup, Output, Source
from meshwright.data.source.unit import Input, Span, Unit
from meshwright.data.stages.decide import decide_units, dropped_of, key_decide, run_decide
from meshwright.data.stages.layout import BLOCK, DOCUMENT, SURVIVOR, Job
from meshwright.data.stages.link import key_link, link_units, run_link
from meshwright.data.stages.shingle import key_shingle, run_shingle, shingle_units
from meshwright.data.words.table import Table
from meshwright.data.work.keys import key_of
from meshwright.data.work.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DEDUP_STAGES = (
    ("link", link_units, key_link, run_link),
    ("shingle", shingle_units, key_shingle, run_shingle),
    ("decide", decide_units, key_decide, run_decide),
)


def scanned_job(
    root: Path,
    units: Sequence[Sequence[str]],
    dedup: Dedup,
    *,
    source_of: Sequence[int] = (),
    per_block: int = 3,
) -> Job:
    """A job whose scan units hold these texts; unit i is all of input i, of source source_of[i]."""
    sources = list(source_of) or [0] * len(units)
    job = Job(
        build=Build(
            sources=tuple(Source(files=(f"{n}",), name=f"{n}") for n in range(max(sources) + 1)),
            output=Output(folder=str(root)),
            dedup=dedup,
        ),
        inputs=tuple(
            Input(path=f"{n}", source=of, format="jsonl", compression="", bytes=1, stamp="")
            for n, of in enumerate(sources)
        ),
        units=tuple(Unit(number=n, spans=(Span(n, 0, 1),), bytes=1) for n in range(len(units))),
        store=Store(root),
    )
    for number, texts in enumerate(units):
        write_scan(job, number, texts, per_block=per_block)
    return job


def write_scan(job: Job, number: int, texts: Sequence[str], *, per_block: int = 3) -> None:
    """One scan unit of these texts, all of which passed the filters."""
    documents, survivors = np.zeros(len(texts), DOCUMENT), np.zeros(len(texts), SURVIVOR)
    bands = [np.zeros((0, key_columns(job.build.dedup)), np.uint64)]
    blocks: list[tuple[int, int, int]] = []
    documents["input"], documents["line"] = number, np.arange(1, len(texts) + 1)
    survivors["row"] = np.arange(len(texts))
    with job.store.writing("scan", number, key=key_of(list(texts))) as draft:
        with draft.opened("text.zst") as file:
            for first in range(0, len(texts), per_block):
                part = slice(first, first + per_block)
                batch = documents_of(texts[part])
                table, stored = Table.of(batch), zstandard.compress(batch.text.tobytes())
                survivors["key"][part], survivors["block"][part] = exact_keys(batch), len(blocks)
                survivors["start"][part] = batch.bounds[:-1]
                survivors["stop"][part] = batch.bounds[1:]
                survivors["words"][part] = np.diff(table.word_bounds)
                bands.append(band_keys(table, job.build.dedup))
                blocks.append((file.tell(), len(stored), len(batch.text)))
                file.write(stored)
        draft.write_column("documents", documents)
        draft.write_column("survivors", survivors)
        draft.write_column("blocks", np.array(blocks, BLOCK))
        draft.write_column("bands", np.concatenate(bands))


def run_dedup(job: Job) -> list[str]:
    """Runs those units of the three stages that are not done; which ones, in order."""
    made = []
    for name, units, key, run in DEDUP_STAGES:
        for number in units(job):
            if not job.store.is_done(name, number, key=key(job, number)):
                run(job, number)
                made.append(f"{name} {number}")
    return made


def dropped(job: Job) -> list[tuple[Any, ...]]:
    """The duplicates of all units, as plain rows."""
    return [tuple(row) for unit in job.units for row in dropped_of(job, unit.number).tolist()]
