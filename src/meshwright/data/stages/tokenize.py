"""Tokenize: the survivors of a scan unit that are no duplicates, as token ids.

A unit holds `tokens` (all ids end to end, EOD behind each document), `lengths` (int32, tokens of
each document with its EOD) and `survivors` (int32, its place in the scan unit's survivors).
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.errors import MeshwrightError
from meshwright.data.stages.decide import dropped_of, kept_of
from meshwright.data.stages.scanned import Scanned, scanned
from meshwright.data.work.columns import growing_column
from meshwright.data.work.keys import key_of, keys_read
from meshwright.data.work.libraries import tokenize_versions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.data.documents import Documents, Mask
    from meshwright.data.settings import TokenizerSource
    from meshwright.data.stages.layout import Job
    from meshwright.data.tokens.tokenizer import Tokenizer
    from meshwright.data.work.columns import Growing
    from meshwright.data.work.store import Draft

CHECKED_BYTES = 4 << 10  # of a document that is compared with the reference, fifty times as slow


def key_tokenize(job: Job, number: int) -> str:
    """What a tokenize unit is made from: its scan unit, what of it is dropped, the vocabulary."""
    assert job.build.tokenizer is not None
    settings = replace(job.build.tokenizer, check_documents=0)  # changes no id
    digests = [digest for name, digest in job.digests if name == "tokenizer"]
    read = keys_read(job.store, "scan", [number])
    dropped = dropped_of(job, number)["survivor"]
    versions = tokenize_versions(settings)
    return key_of(settings, versions, digests, read, dropped.tobytes())


def run_tokenize(job: Job, number: int) -> None:
    """Makes one tokenize unit; MeshwrightError when the ids are not those of the reference."""
    settings = job.build.tokenizer
    assert settings is not None
    tokenizer, unit = tokenizer_of(settings, job.digests), scanned(job, number)
    keep = kept_of(job, number)
    check_against_reference(unit, keep, tokenizer=tokenizer, job=job)
    key = key_tokenize(job, number)
    with job.store.writing("tokenize", number, key=key) as draft:
        started = time.process_time()
        with growing_column(draft, "tokens", tokenizer.dtype) as tokens:
            lengths, survivors, text_bytes = _encode(unit, keep, tokenizer=tokenizer, tokens=tokens)
        _write(draft, lengths, survivors)
        draft.facts.update(
            documents=len(lengths),
            tokens=int(lengths.sum(dtype=np.int64)),
            text_bytes=text_bytes,
            seconds=round(time.process_time() - started, 6),
        )


@lru_cache(maxsize=1)
def tokenizer_of(settings: TokenizerSource, _digests: tuple[tuple[str, str], ...]) -> Tokenizer:
    """The tokenizer whose files have these digests, loaded once a process."""
    from meshwright.data.tokens.tokenizer import load

    return load(settings, library=settings.library)


def _encode(
    unit: Scanned, keep: Mask, *, tokenizer: Tokenizer, tokens: Growing
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Writes the ids of every kept document; their lengths, places, and bytes of text."""
    lengths: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    survivors: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    text_bytes = 0
    for places, documents in unit.batches(keep):
        ids, bounds = tokenizer.encode(documents)
        tokens.append(with_eod(ids, bounds, eod_id=tokenizer.eod_id))
        lengths.append((np.diff(bounds) + 1).astype(np.int32))
        survivors.append(places.astype(np.int32))
        text_bytes += int(documents.bounds[-1])
    return np.concatenate(lengths), np.concatenate(survivors), text_bytes


def with_eod(
    ids: NDArray[np.integer], bounds: NDArray[np.int64], *, eod_id: int
) -> NDArray[np.integer]:
    """The ids of documents end to end with `eod_id` behind each."""
    found = np.empty(len(ids) + len(bounds) - 1, dtype=ids.dtype)
    ends = bounds[1:] + np.arange(len(bounds) - 1)
    is_text = np.ones(len(found), dtype=np.bool_)
    is_text[ends] = False
    found[is_text] = ids
    found[ends] = eod_id
    return found


def _write(draft: Draft, lengths: NDArray[np.int32], survivors: NDArray[np.int32]) -> None:
    draft.write_column("lengths", lengths)
    draft.write_column("survivors", survivors)


def check_against_reference(unit: Scanned, keep: Mask, *, tokenizer: Tokenizer, job: Job) -> None:
    """Compares some documents of the unit, evenly spread, with the reference library's ids.

    MeshwrightError for the first that has others.
    """
    settings = job.build.tokenizer
    assert settings is not None
    kept = np.flatnonzero(keep)
    count = min(settings.check_documents, len(kept))
    if not count:
        return
    chosen = kept[np.linspace(0, len(kept) - 1, num=count, dtype=np.int64)]
    documents = heads(unit.texts(chosen), CHECKED_BYTES)
    ids, bounds = tokenizer.encode(documents)
    wanted = tokenizer.reference(documents.strings())
    for place, expected in enumerate(wanted):
        if ids[bounds[place] : bounds[place + 1]].tolist() != list(expected):
            path = job.inputs[int(documents.input[place])].path
            raise _differs(f"{path}, line {int(documents.line[place])}", settings)


def heads(documents: Documents, most_bytes: int) -> Documents:
    """The documents cut at a character within their first `most_bytes`."""
    long = np.flatnonzero(documents.lengths > most_bytes).tolist()
    cut = {place: documents.encoded(place)[:most_bytes] for place in long}
    return documents.with_texts(
        {place: text.decode(errors="ignore").encode() for place, text in cut.items()}
    )


def _differs(where: str, settings: TokenizerSource) -> MeshwrightError:
    return MeshwrightError(
        f"{where}: the fast tokenizer gives other ids than the reference library",
        hint='library = "reference" in [tokenizer] goes without it; please report it, with '
        f"{settings.file}",
    )
