"""Tokenize: ids that are not the reference library's never become a unit."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scan_units import scanned_job

from meshwright.base.errors import MeshwrightError
from meshwright.data.documents import bounds_of
from meshwright.data.settings import Dedup, TokenizerSource
from meshwright.data.stages import tokenize
from meshwright.data.stages.tokenize import CHECKED_BYTES, key_tokenize, run_tokenize
from meshwright.data.tokens import tokenizer
from meshwright.data.work import libraries

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.data.documents import Documents
    from meshwright.data.stages.layout import Job

TEXTS = [f"text {number}" for number in range(20)]


def bytes_of(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
    """A byte is a token; the eleventh text gets a wrong one."""
    ids = documents.text.astype(np.uint32)
    for place, text in enumerate(documents.strings()):
        if text == TEXTS[10]:
            ids[documents.bounds[place]] += 1
    return ids, bounds_of(documents.lengths)


def job_of(folder: Path, texts: list[str], *, check_documents: int) -> Job:
    job = scanned_job(folder, [texts], Dedup(exact=False))
    source = TokenizerSource(file="t.json", check_documents=check_documents)
    return replace(job, build=replace(job.build, tokenizer=source))


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that the reference was asked about."""
    lengths: list[int] = []

    def reference(texts: list[str]) -> list[list[int]]:
        lengths.extend(map(len, texts))
        return [list(text.encode()) for text in texts]

    made: Any = SimpleNamespace(encode=bytes_of, reference=reference, eod_id=0, dtype=np.uint16)
    monkeypatch.setattr(tokenize, "tokenizer_of", lambda *_: made)
    return lengths


def test_other_ids_than_the_reference_gives_are_told_with_their_place(tmp_path: Path) -> None:
    job = job_of(tmp_path, TEXTS, check_documents=20)
    with pytest.raises(MeshwrightError, match="0, line 11: the fast tokenizer") as error:
        run_tokenize(job, 0)
    assert 'library = "reference" in [tokenizer]' in error.value.hint
    assert job.store.record("tokenize", 0) is None


def test_as_many_documents_are_compared_as_the_settings_say(tmp_path: Path, seen: list) -> None:
    run_tokenize(job_of(tmp_path, TEXTS, check_documents=2), 0)  # the first and the last
    assert seen == [6, 7]
    run_tokenize(job_of(tmp_path, TEXTS, check_documents=0), 0)
    assert len(seen) == 2


def test_what_is_only_compared_makes_no_unit_anew(tmp_path: Path) -> None:
    keys = {key_tokenize(job_of(tmp_path, TEXTS, check_documents=n), 0) for n in (0, 8)}
    other = job_of(tmp_path, TEXTS, check_documents=0)
    other = replace(other, digests=(("tokenizer", "of another"),))
    assert len(keys) == 1
    assert key_tokenize(other, 0) not in keys


def test_another_library_or_version_of_it_makes_units_anew(tmp_path: Path, monkeypatch) -> None:
    job = job_of(tmp_path, TEXTS, check_documents=8)
    assert job.build.tokenizer is not None
    slow = replace(job.build.tokenizer, library="reference")
    keys = {
        key_tokenize(each, 0)
        for each in (job, replace(job, build=replace(job.build, tokenizer=slow)))
    }
    monkeypatch.setattr(libraries, "version_of", lambda name: "99" if name == "gigatoken" else "1")
    keys.add(key_tokenize(job, 0))
    monkeypatch.setattr(libraries, "version_of", lambda _: "1")
    keys.add(key_tokenize(job, 0))
    assert len(keys) == 4


@pytest.mark.parametrize("library", ["auto", "reference"])
def test_the_library_is_the_one_that_the_settings_name(monkeypatch, library: str) -> None:
    asked = []
    monkeypatch.undo()
    monkeypatch.setattr(tokenizer, "load", lambda _, library: asked.append(library))
    tokenize.tokenizer_of(TokenizerSource(file="x.json", library=library), ())
    assert asked == [library]


def test_long_documents_are_compared_by_how_they_begin(tmp_path: Path, seen: list) -> None:
    run_tokenize(job_of(tmp_path, ["a" * 3 * CHECKED_BYTES], check_documents=8), 0)
    assert seen == [CHECKED_BYTES]
