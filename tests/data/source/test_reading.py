from __future__ import annotations

import gzip
import json
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.data.documents import BATCH_BYTES
from meshwright.data.settings import Limits, Source
from meshwright.data.source.division import plan_units
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.reading import read_unit
from meshwright.data.source.records import records_of
from meshwright.data.source.rows import Gathering, Rows


def records(path) -> list:
    source = Source(files=(str(path),), documents="line")
    return [record for found in list_inputs((source,)) for record in records_of(found, Limits())]


def batches(path, *, limits: Limits = Limits()):  # noqa: B008
    sources = (Source(files=(str(path),)),)
    inputs = list_inputs(sources)
    [unit] = plan_units(inputs, unit_bytes=1 << 30)
    return read_unit(unit, inputs, sources=sources, limits=limits, reject=lambda bad: None)


def test_batches_are_of_about_the_same_size_and_hold_several_files(tmp_path):
    for number in range(3):
        lines = [json.dumps({"text": "x" * 50_000}) for _ in range(30)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    found = list(batches(tmp_path))
    assert [len(batch) for batch in found][:-1] == [len(found[0])] * (len(found) - 1)
    assert all(BATCH_BYTES <= len(batch.text) < BATCH_BYTES + 200_000 for batch in found[:-1])
    assert sum(map(len, found)) == 90
    assert len({*found[0].input.tolist()}) == 2


def test_memory_does_not_grow_with_the_input(tmp_path):
    line = json.dumps({"text": "some text of no great length " * 20}).encode() + b"\n"
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(line * 40_000, 1))
    tracemalloc.start()
    count = sum(len(batch) for batch in batches(tmp_path / "x.jsonl.gz"))
    assert tracemalloc.get_traced_memory()[1] < 6 * BATCH_BYTES
    tracemalloc.stop()
    assert count == 40_000


@pytest.mark.parametrize("change", ["shorter", "longer", "gone", "other"])
def test_a_file_that_changed_since_it_was_listed_is_told(tmp_path, change):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text":"a"}\n' * 100)
    found = batches(path)
    if change == "gone":
        path.unlink()
    elif change == "other":
        os.utime(path, ns=(1, 1))
    else:
        path.write_bytes(b'{"text":"a"}\n' * (99 if change == "shorter" else 101))
    with pytest.raises(InvalidInput, match=r"x\.jsonl: (changed|cannot be read)"):
        list(found)


def test_an_error_of_the_one_who_keeps_rejects_is_not_taken_for_one_of_the_file(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"bad\n")
    sources = (Source(files=(str(path),)),)
    inputs = list_inputs(sources)

    def full(bad: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        list(
            read_unit(plan_units(inputs)[0], inputs, sources=sources, limits=Limits(), reject=full)
        )


STARTS = [
    b"",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"PAR1",
    b'{"text":"',
    b"\xff\xfe",
    b"[",
    b"\n",
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("noise")


@given(
    st.sampled_from(STARTS),
    st.binary(max_size=200),
    st.sampled_from([b"", b"PAR1", b"\4\0\0\0PAR1", b'"}']),
    st.sampled_from(["x", "x.jsonl", "x.parquet", "x.txt", "x.jsonl.gz", "x.txt.zst"]),
    st.sampled_from(["file", "line", "paragraph"]),
)
@settings(max_examples=300)
def test_any_bytes_are_documents_or_an_error_of_ours(
    scratch, read_inputs, start, noise, end, name, documents
):
    path = scratch / name
    path.write_bytes(start + noise + end)
    sources = (Source(files=(str(path),), documents=documents),)
    told = ""
    try:
        whole = read_inputs(list_inputs(sources), sources)
        divided = read_inputs(list_inputs(sources), sources, unit_bytes=13)
        assert whole[:4] == divided[:4]
        records(path)
    except MeshwrightError as error:
        told = str(error)
    assert not told or str(path) in told


def test_records_are_all_that_a_file_holds(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"q":"x","n":[1]}\n\n{"q":"y"}')
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfone\r\n\ntwo")
    assert records(tmp_path) == [
        {"q": "x", "n": [1]},
        {"q": "y"},
        {"text": "one"},
        {"text": "two"},
    ]


@pytest.mark.parametrize("line", [b"{", b"[1]", b'"a"', b'{"a":"\xff"}'])
def test_a_record_that_cannot_be_read_stops_with_its_line(tmp_path, line):
    (tmp_path / "a.jsonl").write_bytes(b'{"q":1}\n' + line)
    with pytest.raises(InvalidInput, match=r"a\.jsonl:2: "):
        records(tmp_path / "a.jsonl")


def test_documents_with_and_without_names_in_one_batch_keep_theirs(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text":"a","id":"x"}\n{"text":"b"}\n')
    (tmp_path / "b.txt").write_bytes(b"c")
    (tmp_path / "c.jsonl").write_bytes(b'{"text":"d","id":7}\n')
    sources = (Source(files=(str(tmp_path),), id_field="id"),)
    inputs = list_inputs(sources)
    [unit] = plan_units(inputs)
    [batch] = read_unit(unit, inputs, sources=sources, limits=Limits(), reject=lambda bad: None)
    assert batch.strings() == ["a", "b", "c", "d"]
    assert batch.ids == ("x", "", "", "7")
    assert batch.take(np.array([False, False, True, True])).ids == ("", "7")


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6))
def test_gathered_rows_have_a_name_for_each_document_or_none_at_all(parts):
    gathering = Gathering()
    for number, (count, named) in enumerate(parts):
        ids = [f"{number}-{i}" for i in range(count)] if named else ()
        list(gathering.add(Rows([b"x"] * count, range(1, count + 1), ids), input=number))
    expected = [f"{n}-{i}" * named for n, (count, named) in enumerate(parts) for i in range(count)]
    found = [name for batch in gathering.rest() for name in batch.ids or [""] * len(batch)]
    assert found == expected
