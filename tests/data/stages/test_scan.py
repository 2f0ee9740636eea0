"""A scan unit: every document accounted for, the text that passed, lines as in the whole file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.data.building import plan_job
from meshwright.data.documents import documents_of
from meshwright.data.reasons import CODES
from meshwright.data.settings import Build, Clean, Dedup, GopherQuality, Limits, Output, Pii, Source
from meshwright.data.source.division import plan_units
from meshwright.data.stages.chain import Batch, Step, Tally, chain_of, run_chain
from meshwright.data.stages.layout import Job
from meshwright.data.stages.lines import rejected, run_lines
from meshwright.data.stages.scan import key_scan, run_scan
from meshwright.data.stages.scanned import scanned

WORDY = "The quick brown fox and the lazy dog have a picnic to be remembered with joy. " * 8


def job_of(folder: Path, **changes: object) -> Job:
    build = Build(
        sources=(Source(files=(f"{folder}/*.jsonl",), id_field="id"),),
        output=Output(folder=str(folder / "out")),
        gopher_quality=GopherQuality(),
        clean=Clean(min_characters=5),
        pii=Pii(),
    )
    return plan_job(replace(build, **changes))


def small_batches(monkeypatch: pytest.MonkeyPatch, batch_bytes: int) -> None:
    monkeypatch.setattr("meshwright.data.source.opening.CHUNK_BYTES", batch_bytes)
    monkeypatch.setattr("meshwright.data.source.rows.BATCH_BYTES", batch_bytes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = [WORDY + str(n) for n in range(30)]
    texts[3], texts[7], texts[11] = "", "too few words for that", WORDY + " Mail bob@corp.org."
    lines = [json.dumps({"text": text, "id": f"d{n}"}) for n, text in enumerate(texts)]
    lines[20] = "{broken"
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_every_document_is_there_with_its_reason(folder: Path) -> None:
    job = job_of(folder)
    run_scan(job, 0)
    unit = scanned(job, 0)
    assert unit.documents["line"].tolist() == [n for n in range(1, 31) if n != 21]
    assert unit.ids[:2] == ("d0", "d1")
    reasons = {int(row["line"]) - 1: int(row["reason"]) for row in unit.documents if row["reason"]}
    assert reasons == {3: CODES["empty"], 7: CODES["gopher_quality.words"]}
    kept = unit.texts(range(len(unit.survivors)))
    assert len(kept) == 27
    assert kept.string(0) == WORDY + "0"
    assert [name for name in kept.ids if "bob@" in name] == []
    assert "bob@corp.org" not in kept.string(kept.ids.index("d11"))
    record = job.store.record("scan", 0)
    assert record is not None
    assert record["inputs"] == {"0": {"read": 29, "rejected": 1, "repaired": 0}}
    assert record["dropped"] == {"empty": 1, "gopher_quality.words": 1}
    assert record["masked"]["email"] == 1
    (example,) = record["examples"]["gopher_quality.words"]
    assert example["line"] == 8
    assert example["excerpt"] == "too few words for that"
    assert "5" in example["why"]
    steps = record["steps"]
    assert list(steps) == ["read", "clean", "pii", "filters", "keys"]
    assert [steps[name]["documents_out"] for name in steps] == [29, 28, 28, 27, 27]


def test_texts_in_any_order_and_batches_by_block(folder: Path, monkeypatch) -> None:
    small_batches(monkeypatch, 2000)
    job = job_of(folder)
    run_scan(job, 0)
    unit = scanned(job, 0)
    assert len(job.store.column("scan", 0, "blocks")) > 5
    every = unit.texts(range(27)).strings()
    order = [26, 0, 13, 13, 2]
    assert unit.texts(order).strings() == [every[n] for n in order]
    assert unit.texts([]).strings() == []
    keep = np.zeros(27, dtype=np.bool_)
    keep[[0, 5, 26]] = True
    found = {
        place: documents.string(i)
        for places, documents in unit.batches(keep)
        for i, place in enumerate(places.tolist())
    }
    assert found == {n: every[n] for n in (0, 5, 26)}
    assert [text for _, batch in unit.batches() for text in batch.strings()] == every


@pytest.mark.parametrize("batch_bytes", [50, 700, 5000])
def test_batches_change_nothing(folder: Path, monkeypatch, batch_bytes: int) -> None:
    job = job_of(folder, dedup=Dedup(near=True))
    run_scan(job, 0)
    whole = scanned(job, 0)
    columns = {name: getattr(whole, name).copy() for name in ("documents", "survivors", "bands")}
    texts = whole.texts(range(27)).strings()
    small_batches(monkeypatch, batch_bytes)
    run_scan(job, 0)
    assert len(job.store.column("scan", 0, "blocks")) > 2
    again = scanned(job, 0)
    assert again.documents.tolist() == columns["documents"].tolist()
    assert (again.bands == columns["bands"]).all()
    for field in ("row", "key", "words"):
        assert (again.survivors[field] == columns["survivors"][field]).all()
    assert again.texts(range(27)).strings() == texts


def test_lines_count_through_a_file_that_is_cut(folder: Path) -> None:
    job = job_of(folder)
    job = replace(job, units=plan_units(job.inputs, unit_bytes=3000))
    assert len(job.units) > 3
    for unit in job.units:
        run_scan(job, unit.number)
    run_lines(job, 0)
    lines = [line for u in job.units for line in scanned(job, u.number).documents["line"].tolist()]
    assert lines == [n for n in range(1, 31) if n != 21]
    bad = [json.loads(line) for unit in job.units for line in rejected(job, unit.number)]
    assert [record["line"] for record in bad] == [21]
    assert bad[0]["file"].endswith("a.jsonl")


def test_the_key_covers_what_matters_and_no_more(folder: Path) -> None:
    job = job_of(folder)
    key = key_scan(job, 0)
    build = job.build
    same = [
        replace(build, seed=9, validation=0.5),
        replace(build, output=replace(build.output, shard_tokens=7)),
        replace(build, dedup=replace(build.dedup, exact=False)),
        replace(build, sources=(replace(build.sources[0], weight=2.0),)),
        replace(build, limits=Limits(expansion=7.0, bad_fraction=0.5)),
    ]
    other = [
        replace(build, pii=None),
        replace(build, clean=Clean(min_characters=6)),
        replace(build, gopher_quality=GopherQuality(min_words=51)),
        replace(build, dedup=replace(build.dedup, near=True)),
        replace(build, limits=Limits(document_bytes=70)),
        replace(build, sources=(replace(build.sources[0], text_field="body"),)),
    ]
    assert {key_scan(replace(job, build=each), 0) for each in same} == {key}
    changed = {key_scan(replace(job, build=each), 0) for each in other}
    assert len(changed) == len(other)
    assert key not in changed
    (touched,) = (replace(found, stamp="later") for found in job.inputs)
    assert key_scan(replace(job, inputs=(touched,)), 0) != key


def test_the_first_reason_counts_and_later_steps_see_the_rest() -> None:
    seen: list[list[str]] = []

    def dropping(*letters: str) -> Step:
        def run(batch: Batch, _tally: Tally):
            texts = batch.documents.strings()
            seen.append(texts)
            empty = np.array([text[0] in letters for text in texts])
            return {"empty": empty, "language": np.ones_like(empty) & empty}

        return Step("-".join(letters), run)

    batch, tally = Batch(documents_of(["a1", "b2", "c3", "a4"])), Tally()
    run_chain((dropping("a"), dropping("b"), dropping()), batch, tally)
    assert seen == [["a1", "b2", "c3", "a4"], ["b2", "c3"], ["c3"]]
    assert batch.reason.tolist() == [CODES["empty"], CODES["empty"], 0, CODES["empty"]]
    assert batch.rows.tolist() == [2]
    assert tally.dropped == {"empty": 3}
    assert [example["line"] for example in tally.examples["empty"]] == [1, 4, 2]


def test_no_more_examples_than_five() -> None:
    def run(batch: Batch, _tally: Tally):
        return {"empty": np.ones(len(batch.documents), dtype=np.bool_)}

    tally = Tally()
    for _ in range(3):
        run_chain((Step("all", run),), Batch(documents_of(["x" * 5000] * 3)), tally)
    assert tally.dropped == {"empty": 9}
    assert len(tally.examples["empty"]) == 5
    assert len(tally.examples["empty"][0]["excerpt"]) == 200


def test_steps_are_those_that_are_asked_for() -> None:
    bare = Build(sources=(Source(files=("a",)),), output=Output(folder="o"))
    assert [step.name for step in chain_of(bare)] == ["clean"]
    near = replace(bare, dedup=Dedup(near=True), pii=Pii())
    assert [step.name for step in chain_of(near)] == ["clean", "pii", "words"]
    assert [step.name for step in chain_of(replace(near, gopher_quality=GopherQuality()))] == [
        "clean",
        "pii",
        "filters",
    ]
