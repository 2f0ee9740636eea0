"""Megatron's .bin and .idx: byte for byte, and never a traceback on damaged ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.shards.hashed import digest_of
from meshwright.data.shards.indexed import HEADER, dtype_for, open_indexed, writing

SEQUENCES = st.lists(st.lists(st.integers(0, 60_000), max_size=9), max_size=9)


def write(prefix: Path, sequences: list[list[int]], dtype: str = "<u2") -> dict[str, object]:
    """Each sequence by itself, so that lengths come in several parts."""
    with writing(prefix, dtype) as (writer, files):
        for sequence in sequences:
            writer.append(np.array(sequence, dtype=dtype), np.array([len(sequence)]))
    return dict(files)


def test_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    write(tmp_path / "x", [[5, 6, 7], [], [65_000]])
    assert (tmp_path / "x.bin").read_bytes() == struct.pack("<4H", 5, 6, 7, 65_000)
    wanted = b"MMIDIDX\0\0" + struct.pack("<Q", 1) + struct.pack("<B", 8)
    wanted += struct.pack("<Q", 3) + struct.pack("<Q", 4)
    wanted += struct.pack("<3i", 3, 0, 1) + struct.pack("<3q", 0, 6, 6)
    wanted += struct.pack("<4q", 0, 1, 2, 3)
    assert (tmp_path / "x.idx").read_bytes() == wanted
    assert len(wanted) == 42 + 20 * 3


def test_wide_ids_take_four_bytes(tmp_path: Path) -> None:
    write(tmp_path / "x", [[1], [70_000]], "<i4")
    assert (tmp_path / "x.bin").read_bytes() == struct.pack("<2i", 1, 70_000)
    assert (tmp_path / "x.idx").read_bytes()[17] == 4
    assert open_indexed(tmp_path / "x")[1].tolist() == [70_000]


@pytest.mark.parametrize(("size", "dtype"), [(65_499, "<u2"), (65_500, "<i4"), (128_000, "<i4")])
def test_types_that_megatron_gives(size: int, dtype: str) -> None:
    assert dtype_for(size) == np.dtype(dtype)


@given(sequences=SEQUENCES)
def test_what_is_written_is_read(tmp_path_factory: object, sequences: list[list[int]]) -> None:
    prefix = tmp_path_factory.mktemp("x") / "x"  # type: ignore[attr-defined]
    files = write(prefix, sequences)
    found = open_indexed(prefix)
    assert [found[n].tolist() for n in range(len(found))] == sequences
    assert found.documents.tolist() == list(range(len(sequences) + 1))
    for name, written in files.items():
        assert digest_of(prefix.with_name(name)) == written


def test_lengths_must_add_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="add up"), writing(tmp_path / "x", "<u2") as (writer, _):
        writer.append(np.array([1, 2]), np.array([3]))
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "x", [[1, 2]])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="add up"), writing(tmp_path / "x", "<u2") as (writer, _):
        writer.append(np.array([9]), np.array([2]))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_multimodal_files_are_read(tmp_path: Path) -> None:
    write(tmp_path / "x", [[1], [2, 3]])
    with (tmp_path / "x.idx").open("ab") as file:
        file.write(bytes(2))
    assert open_indexed(tmp_path / "x")[1].tolist() == [2, 3]


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [
        (0, b"X", "does not begin"),
        (9, struct.pack("<Q", 2), "version 2"),
        (17, b"\x09", "names type 9"),
        (18, struct.pack("<Q", 2**63), "bytes where"),
        (26, struct.pack("<Q", 0), "bytes where"),
        (HEADER.size, struct.pack("<i", -1), "negative"),
        (HEADER.size, struct.pack("<i", 5), "does not begin where"),
        (HEADER.size + 8, struct.pack("<q", 2), "does not begin where"),
        (HEADER.size + 24, struct.pack("<q", 1), "documents do not divide"),
        (HEADER.size + 32, struct.pack("<q", 3), "documents do not divide"),
        (HEADER.size + 40, struct.pack("<q", 9), "documents do not divide"),
    ],
)
def test_damage_is_told(tmp_path: Path, at: int, value: bytes, says: str) -> None:
    write(tmp_path / "x", [[1, 2], [3]])
    path = tmp_path / "x.idx"
    content = bytearray(path.read_bytes())
    content[at : at + len(value)] = value
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=says) as error:
        open_indexed(tmp_path / "x")
    assert error.value.findings[0].file == str(path)


@pytest.mark.parametrize("size", [0, 1, 33, 34, 60])
def test_a_truncated_index_is_told(tmp_path: Path, size: int) -> None:
    write(tmp_path / "x", [[1, 2], [3]])
    path = tmp_path / "x.idx"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InvalidInput, match="bytes"):
        open_indexed(tmp_path / "x")


@pytest.mark.parametrize("change", [-2, -1, 1, 2])
def test_tokens_of_another_length_are_told(tmp_path: Path, change: int) -> None:
    write(tmp_path / "x", [[1, 2], [3]])
    path = tmp_path / "x.bin"
    content = path.read_bytes()
    path.write_bytes(content[:change] if change < 0 else content + bytes(change))
    with pytest.raises(InvalidInput, match=r"x.bin has . bytes where its index says 6"):
        open_indexed(tmp_path / "x")


def test_a_missing_half_is_told(tmp_path: Path) -> None:
    write(tmp_path / "x", [[1, 2], [3]])
    (tmp_path / "x.bin").unlink()
    with pytest.raises(InvalidInput, match="No such file"):
        open_indexed(tmp_path / "x")


@given(content=st.binary(max_size=120), keep=st.booleans())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: object, content: bytes, keep: bool
) -> None:
    prefix = tmp_path_factory.mktemp("x") / "x"  # type: ignore[attr-defined]
    prefix.with_name("x.bin").write_bytes(content[:10])
    head = HEADER.pack(b"MMIDIDX\0\0", 1, 8, 2, 3) if keep else b""
    prefix.with_name("x.idx").write_bytes(head + content)
    try:
        found = open_indexed(prefix)
    except InvalidInput:
        return
    assert sum(len(found[n]) for n in range(len(found))) == len(found.tokens)


@pytest.mark.parity
def test_megatron_reads_the_same(tmp_path: Path) -> None:
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    rng = np.random.default_rng(0)
    sequences = [rng.integers(0, 60_000, int(n)).tolist() for n in rng.integers(0, 50, 200)]
    write(tmp_path / "x", sequences)
    theirs = indexed_dataset.IndexedDataset(str(tmp_path / "x"))
    assert len(theirs) == len(sequences)
    assert theirs.index.dtype == np.uint16
    assert [theirs[n].tolist() for n in range(len(theirs))] == sequences
    assert theirs.document_indices.tolist() == list(range(201))


@pytest.mark.parity
def test_megatron_writes_the_same(tmp_path: Path) -> None:
    indexed_dataset = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 2**31, int(n)).tolist() for n in rng.integers(1, 50, 200)]
    write(tmp_path / "ours", sequences, "<i4")
    builder = indexed_dataset.IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=np.int32)
    for sequence in sequences:
        builder.add_document(torch.tensor(sequence), [len(sequence)])
    builder.finalize(str(tmp_path / "theirs.idx"))
    for end in (".bin", ".idx"):
        assert (tmp_path / f"ours{end}").read_bytes() == (tmp_path / f"theirs{end}").read_bytes()
