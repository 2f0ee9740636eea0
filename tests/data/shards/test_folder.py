"""Folders of shards: the rows read back are the documents written, piece by piece."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_shards import EOD, PAD, documents, vocabulary

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.pack.strategy import STRATEGIES
from meshwright.data.settings import Pack
from meshwright.data.shards import writing
from meshwright.data.shards.assemble import write_folder
from meshwright.data.shards.folder import Folder, open_folder
from meshwright.data.shards.indexed import open_indexed


def held(folder: Folder, made: list[list[np.ndarray]]) -> list[tuple[int, int, int, int]]:
    """(shard, document, offset, tokens) of every piece, each held to the documents written."""
    found = []
    for row in range(len(folder)):
        tokens, pieces = folder.row(row)
        shard, _ = folder.place(row)
        at = 0
        for piece in pieces:
            document = made[shard][piece["document"]]
            start, end = int(piece["offset"]), int(piece["offset"] + piece["length"])
            assert tokens[at : at + piece["length"]].tolist() == document[start:end].tolist()
            assert piece["next"] == (document[end] if end < len(document) else -1)
            at += int(piece["length"])
            found.append((shard, int(piece["document"]), start, end))
        assert at == len(tokens) <= folder.seq_len
    return found


@pytest.mark.parametrize("layout", ["documents", "rows"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@hypothesis.settings(max_examples=20)
@given(seed=st.integers(0, 10**6), seq_len=st.integers(1, 50), count=st.integers(1, 40))
def test_rows_are_the_documents(
    tmp_path_factory: pytest.TempPathFactory,
    strategy: str,
    layout: str,
    seed: int,
    seq_len: int,
    count: int,
) -> None:
    path = tmp_path_factory.mktemp("x")
    made = [documents(count, seed=seed), documents(3, seed=seed + 1)]
    pack = Pack(seq_len=seq_len, strategy=strategy, layout=layout)
    write_folder(path, {"train": made}, pack=pack, vocabulary=vocabulary(), seed=seed)
    folder = open_folder(path)
    pieces = sorted(held(folder, made))
    whole = {(s, d): 0 for s, shard in enumerate(made) for d in range(len(shard))}
    for shard, document, start, end in pieces:
        assert whole[shard, document] == start
        whole[shard, document] = end
    assert whole == {(s, d): len(x) for s, shard in enumerate(made) for d, x in enumerate(shard)}
    assert folder.tokens == sum(len(x) for shard in made for x in shard)


@pytest.mark.parametrize("dtype", ["<u2", "<i4"])
@pytest.mark.parametrize("layout", ["documents", "rows"])
def test_sequences_of_the_two_layouts(tmp_path: Path, layout: str, dtype: str) -> None:
    made = documents(30)
    pack = Pack(seq_len=16, strategy="best-fit", layout=layout)
    write_folder(tmp_path, {"train": [made]}, pack=pack, vocabulary=vocabulary(dtype))
    found = open_indexed(tmp_path / "train-00000")
    assert found.tokens.dtype == dtype
    if layout == "documents":
        assert [found[n].tolist() for n in range(len(found))] == [x.tolist() for x in made]
    else:
        folder = open_folder(tmp_path)
        assert set(found.lengths.tolist()) == {16}
        for row in range(len(folder)):
            tokens = folder.row(row)[0].tolist()
            assert found[row].tolist() == tokens + [PAD] * (16 - len(tokens))


def test_several_rows_at_once(small: Path) -> None:
    folder = open_folder(small)
    asked = np.array([3, 0, len(folder) - 1, 3])
    batch = folder.rows(asked)
    assert batch.tokens.shape == (4, 16)
    for place, row in enumerate(asked.tolist()):
        tokens, pieces = folder.row(row)
        padding = [PAD] * (16 - len(tokens))
        assert batch.tokens[place].tolist() == tokens.tolist() + padding
        first, last = batch.bounds[place : place + 2]
        assert batch.pieces[first:last].tolist() == pieces.tolist()


def test_no_rows_at_once(small: Path) -> None:
    assert open_folder(small).rows(np.zeros(0, dtype=int)).tokens.shape == (0, 16)


def test_costs_are_sums_of_squares(small: Path) -> None:
    folder = open_folder(small)
    wanted = [int((folder.row(n)[1]["length"].astype(int) ** 2).sum()) for n in range(len(folder))]
    assert folder.costs.tolist() == wanted


def test_splits_are_apart(small: Path) -> None:
    made = documents(25)
    valid = open_folder(small, "valid")
    assert valid.tokens == sum(map(len, made[20:]))
    assert len({piece[1] for piece in held(valid, [made[20:]])}) == 5


def test_a_pickled_folder_reads_the_same(small: Path) -> None:
    folder = open_folder(small)
    folder.row(0)
    copy = pickle.loads(pickle.dumps(folder))
    assert copy.row(1)[0].tolist() == folder.row(1)[0].tolist()
    assert len(pickle.dumps(folder)) < 500


def test_a_document_from_its_pieces(small: Path) -> None:
    made = documents(25)
    shard = open_folder(small).shard(1)
    for number, document in enumerate(made[12:20]):
        assert shard.document(number).tolist() == document.tolist()
    assert shard.document(8).tolist() == []


def test_rows_outside(small: Path) -> None:
    folder = open_folder(small)
    for row in (-1, len(folder)):
        with pytest.raises(IndexError):
            folder.row(row)


def test_another_seed_is_another_order(tmp_path: Path) -> None:
    made = documents(60)
    orders = []
    for seed in (0, 1):
        path = tmp_path / str(seed)
        pack = Pack(seq_len=16, strategy="best-fit")
        write_folder(path, {"train": [made]}, pack=pack, vocabulary=vocabulary(), seed=seed)
        folder = open_folder(path)
        orders.append([folder.row(n)[0].tolist() for n in range(len(folder))])
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = documents(60)
    contents = []
    for block in (1, 50, 10**6):
        monkeypatch.setattr(writing, "BLOCK_TOKENS", block)
        path = tmp_path / str(block)
        for strategy in ("best-fit", "concatenate"):
            pack = Pack(seq_len=16, strategy=strategy)
            write_folder(path / strategy, {"train": [made]}, pack=pack, vocabulary=vocabulary())
        contents.append({p.relative_to(path): p.read_bytes() for p in path.rglob("*.*")})
    assert contents[0] == contents[1] == contents[2]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        open_folder(tmp_path / "none")


def test_a_folder_of_text_alone_has_no_rows(tmp_path: Path) -> None:
    from meshwright.data.shards.manifest import Manifest, encoded

    (tmp_path / "manifest.json").write_bytes(encoded(Manifest(tool="x")))
    with pytest.raises(MeshwrightError, match="no tokens") as error:
        open_folder(tmp_path)
    assert "--tokenizer" in error.value.hint


@pytest.mark.parametrize("end", [".idx", ".rows.npy", ".pieces.npy"])
@hypothesis.settings(max_examples=60)
@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, end: str, at: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("x")
    pack = Pack(seq_len=16, strategy="best-fit")
    write_folder(path, {"train": [documents(6)]}, pack=pack, vocabulary=vocabulary())
    damaged = path / f"train-00000{end}"
    content = bytearray(damaged.read_bytes())
    content[at % len(content)] ^= 1 << bit
    damaged.write_bytes(content)
    folder = open_folder(path)
    try:
        for row in range(len(folder)):
            tokens, pieces = folder.row(row)
            assert len(tokens) == pieces["length"].sum() <= 16
    except InvalidInput as error:
        told = error.findings[0].file
    else:
        told = str(path)
    assert told.startswith(str(path))


def test_eod_ends_every_document(small: Path) -> None:
    shard = open_folder(small).shard(0)
    assert all(shard.document(number)[-1] == EOD for number in range(12))


def test_few_shards_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.data.shards import folder as module

    monkeypatch.setattr(module, "OPEN_SHARDS", 2)
    shards = [documents(4, seed=seed) for seed in range(5)]
    pack = Pack(seq_len=16, strategy="best-fit")
    write_folder(tmp_path, {"train": shards}, pack=pack, vocabulary=vocabulary())
    folder = open_folder(tmp_path)
    for _ in range(2):
        held(folder, shards)
        assert len(folder._opened) == 2
    assert len(folder.costs) == len(folder)


def test_a_pipe_in_place_of_a_plan(small: Path) -> None:
    (small / "train-00000.rows.npy").unlink()
    os.mkfifo(small / "train-00000.rows.npy")
    with pytest.raises(InvalidInput, match="is no file"):
        open_folder(small).row(0)
