"""Arrange and emit: what goes into which shard, whatever the division into units."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_shards import texts, write_tokenizer
from scan_units import scanned_job

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.settings import Dedup, Mix, Output, Pack, TokenizerSource
from meshwright.data.shards import writing
from meshwright.data.stages.arrange import (
    by_unit,
    column_name,
    held_out,
    key_arrange,
    run_arrange,
    shards_of,
)
from meshwright.data.stages.emit import TokensOfUnits, emit_units, key_emit, run_emit
from meshwright.data.stages.layout import PLACED, Job
from meshwright.data.stages.scanned import scanned
from meshwright.data.stages.tokenize import run_tokenize
from meshwright.data.work.store import Store


def tokenized_job(
    root: Path,
    units: list[list[str]],
    *,
    source_of: tuple[int, ...] = (),
    weights: tuple[float | None, ...] = (),
    shard_tokens: int = 500,
    **changes: Any,
) -> Job:
    """A job whose documents are scanned and tokenized, one input for each unit."""
    job = scanned_job(root / "work", units, Dedup(exact=False), source_of=source_of)
    sources = job.build.sources
    if weights:
        pairs = zip(sources, weights, strict=True)
        sources = tuple(replace(source, weight=weight) for source, weight in pairs)
    build = replace(
        job.build,
        sources=sources,
        output=Output(folder=str(root / "out"), shard_tokens=shard_tokens),
        tokenizer=TokenizerSource(file=str(write_tokenizer(root / "tokenizer"))),
        pack=Pack(seq_len=32, strategy="best-fit"),
        **changes,
    )
    job = replace(job, build=build)
    for unit in job.units:
        run_tokenize(job, unit.number)
    return job


def arranged(job: Job) -> dict[str, list[list[tuple[int, int]]]]:
    """Documents (unit, place) of every shard, by split."""
    run_arrange(job, 0)
    found: dict[str, list[list[tuple[int, int]]]] = {"train": [], "valid": []}
    for number, (split, place) in enumerate(shards_of(job.store)):
        placed = job.store.column("arrange", 0, column_name(number))
        assert place == len(found[split])
        found[split].append([(int(row["unit"]), int(row["index"])) for row in placed])
    return found


def flat(shards: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
    return [document for shard in shards for document in shard]


def text_of(job: Job, document: tuple[int, int]) -> str:
    return scanned(job, document[0]).texts([document[1]]).string(0)


UNITS = [texts(40), texts(30, seed=1), [], texts(1, seed=2)]


def test_every_document_is_in_one_shard(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, UNITS, validation=0.2)
    found = arranged(job)
    everything = sorted(flat(found["train"]) + flat(found["valid"]))
    assert everything == [(unit, n) for unit, found in enumerate(UNITS) for n in range(len(found))]
    assert 5 <= len(flat(found["valid"])) <= 25


def test_a_text_stays_on_its_side(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path / "a", UNITS, validation=0.3)
    more = tokenized_job(
        tmp_path / "b", [texts(9, seed=5), *UNITS[::-1]], validation=0.3, seed=7, shard_tokens=90
    )
    sides: dict[str, str] = {}
    for each in (job, more):
        for split, shards in arranged(each).items():
            for document in flat(shards):
                assert sides.setdefault(text_of(each, document), split) == split
    assert set(sides.values()) == {"train", "valid"}


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_share_that_is_held_out(share: float) -> None:
    keys = np.random.default_rng(0).integers(0, 2**64, (40_000, 2), dtype=np.uint64)
    assert abs(held_out(keys, share).mean() - share) < 0.01


def test_shards_are_of_equal_size(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, UNITS)
    arranged(job)
    sizes = list(emit_units(job).values())
    assert len(sizes) == round(sum(sizes) / 500)
    assert max(sizes) - min(sizes) < 130  # no document is longer


def test_one_small_shard(tmp_path: Path) -> None:
    assert [len(s) for s in arranged(tokenized_job(tmp_path, [["one"]]))["train"]] == [1]


def test_nothing_to_arrange(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, [[]])
    assert arranged(job) == {"train": [], "valid": []}
    assert emit_units(job) == {}


def test_another_seed_is_another_order(tmp_path: Path) -> None:
    orders = []
    for seed in (0, 1, 0):
        job = tokenized_job(tmp_path, UNITS, seed=seed)
        orders.append(flat(arranged(job)["train"]))
    assert orders[0] == orders[2] != orders[1]
    assert orders[0] != sorted(orders[0])


def shares(job: Job, found: dict[str, list[list[tuple[int, int]]]]) -> list[float]:
    """Tokens of each source in training, as shares."""
    tokens = [0] * len(job.build.sources)
    for unit, place in flat(found["train"]):
        length = job.store.column("tokenize", unit, "lengths")[place]
        tokens[job.inputs[unit].source] += int(length)
    return [one / sum(tokens) for one in tokens]


def test_sources_by_weight(tmp_path: Path) -> None:
    units = [texts(120), texts(60, seed=1), texts(60, seed=2)]
    job = tokenized_job(
        tmp_path, units, source_of=(0, 1, 2), weights=(0.2, 0.5, None), validation=0.1
    )
    assert shares(job, arranged(job)) == pytest.approx([0.2, 0.5, 0.3], abs=0.02)
    record = job.store.record("arrange", 0)
    assert [one["documents"] for one in record["sources"]] == [120, 60, 60]


def test_repeats_are_even_and_never_in_validation(tmp_path: Path) -> None:
    units = [texts(60), texts(60, seed=1)]
    tokens = 12_000
    job = tokenized_job(
        tmp_path,
        units,
        source_of=(0, 1),
        weights=(0.8, 0.2),
        validation=0.2,
        mix=Mix(tokens=tokens),
    )
    found = arranged(job)
    times = Counter(flat(found["train"]))
    assert max(times.values()) > 1
    by_source = [{times[d] for d in times if d[0] == unit} for unit in (0, 1)]
    assert all(max(counts) - min(counts) <= 1 for counts in by_source)
    assert max(Counter(flat(found["valid"])).values()) == 1
    lengths = [job.store.column("tokenize", unit, "lengths")[n] for unit, n in flat(found["train"])]
    assert sum(lengths) == pytest.approx(tokens, rel=0.01)


def test_too_many_repeats_are_refused(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, [texts(9)], weights=(1.0,), mix=Mix(tokens=10**9), source_of=(0,))
    with pytest.raises(InvalidInput, match="repeat 0") as error:
        run_arrange(job, 0)
    assert "mix.tokens" in error.value.hint


def emitted(job: Job) -> dict[str, bytes]:
    """Every file of every shard."""
    run_arrange(job, 0)
    files = {}
    for number in emit_units(job):
        run_emit(job, number)
        folder = job.store.folder("emit", number)
        files |= {p.name: p.read_bytes() for p in folder.iterdir() if p.name != "unit.json"}
    return files


@pytest.mark.parametrize("strategy", ["best-fit", "concatenate", "padded"])
def test_the_division_into_units_does_not_show(tmp_path: Path, strategy: str) -> None:
    everything = texts(70)
    contents = []
    for name, cuts in (("a", [30, 50]), ("b", [1, 1, 69])):
        bounds = [0, *cuts, 70]
        units = [everything[a:b] for a, b in pairwise(bounds)]
        job = tokenized_job(tmp_path / name, units, validation=0.1)
        build = replace(job.build, pack=Pack(seq_len=32, strategy=strategy))
        contents.append(emitted(replace(job, build=build)))
    assert contents[0].keys() == contents[1].keys()
    assert contents[0] == contents[1]
    assert {"train-00000.bin", "valid-00000.idx", "train-00001.rows.npy"} <= contents[0].keys()


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tokenized_job(tmp_path, UNITS)
    whole = emitted(job)
    monkeypatch.setattr(writing, "BLOCK_TOKENS", 40)
    assert emitted(job) == whole


def test_tokens_are_those_of_the_units(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, UNITS)
    job = replace(job, build=replace(job.build, pack=Pack(seq_len=32)))
    tokens = emitted(job)["train-00000.bin"]
    wanted = []
    for row in job.store.column("arrange", 0, column_name(0)):
        lengths = job.store.column("tokenize", row["unit"], "lengths")
        start = int(lengths[: row["index"]].sum())
        unit = job.store.column("tokenize", row["unit"], "tokens")
        wanted += unit[start : start + row["length"]].tolist()
    assert np.frombuffer(tokens, dtype="<u2").tolist() == wanted


def test_the_key_of_a_shard_changes_with_its_packing(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, UNITS)
    run_arrange(job, 0)
    other = replace(job, build=replace(job.build, pack=Pack(seq_len=64)))
    assert key_emit(job, 0) != key_emit(other, 0)
    assert key_emit(job, 0) != key_emit(job, 1)


def test_the_key_of_an_arrangement_changes_with_the_sources(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, UNITS, source_of=(0, 0, 1, 1), weights=(0.5, 0.5))
    inputs = tuple(replace(one, source=n > 0) for n, one in enumerate(job.inputs))
    other_seed = replace(job, build=replace(job.build, seed=1))
    changed = [job, replace(job, inputs=inputs), other_seed]
    assert len({key_arrange(each, 0) for each in changed}) == 3


def test_tokens_that_were_cut_off_are_told(tmp_path: Path) -> None:
    job = tokenized_job(tmp_path, UNITS)
    run_arrange(job, 0)
    path = job.store.folder("tokenize", 0) / "tokens.npy"
    path.write_bytes(path.read_bytes()[:-40])
    number = next(n for n in emit_units(job) if is_last_of_unit_in(job, n))
    with pytest.raises(MeshwrightError, match="shorter than it was"):
        run_emit(job, number)


def is_last_of_unit_in(job: Job, shard: int) -> bool:
    """Whether the last document of unit 0 is in that shard."""
    placed = job.store.column("arrange", 0, column_name(shard))
    return bool(((placed["unit"] == 0) & (placed["index"] == len(UNITS[0]) - 1)).any())


def test_places_by_unit() -> None:
    found = {unit: here.tolist() for unit, here in by_unit(np.array([5, 2, 5, 5, 0]))}
    assert found == {0: [4], 2: [1], 5: [0, 2, 3]}
    assert list(by_unit(np.zeros(0, dtype=int))) == []


def test_wide_ids_are_gathered(tmp_path: Path) -> None:
    store, rng = Store(tmp_path), np.random.default_rng(0)
    units = [[rng.integers(0, 2**31, n).astype(np.int32) for n in sizes] for sizes in ([3, 9], [5])]
    for number, documents in enumerate(units):
        with store.writing("tokenize", number, key="") as draft:
            draft.write_column("tokens", np.concatenate(documents))
    placed = np.array([(1, 0, 0, 5), (0, 1, 3, 9), (0, 0, 0, 3)], dtype=PLACED)
    tokens = TokensOfUnits(store, placed, np.dtype("<i4"))
    out = np.zeros(8, dtype="<i4")
    pieces = (np.array([1, 0, 2]), np.array([4, 0, 1]), np.array([5, 1, 2]))
    tokens.fill(out, np.array([3, 0, 1]), pieces)
    wanted = [units[1][0][:1], units[0][0][1:3], units[0][1][4:9]]
    assert out.tolist() == np.concatenate(wanted).tolist()
    assert tokens.at(np.array([0, 1]), np.array([4, 8])).tolist() == [
        units[1][0][4],
        units[0][1][8],
    ]
    assert tokens.at(np.array([], dtype=int), np.array([], dtype=int)).tolist() == []
