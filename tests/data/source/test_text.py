from __future__ import annotations

import pytest

from meshwright.data.settings import Limits, Source
from meshwright.data.source.division import plan_units
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.reading import read_unit

PROSE = b"\xef\xbb\xbfone\ntwo\r\n\r\n \t\nthree \xff\n\n\n\nfour\nfive"


def test_a_file_is_one_document_with_its_bytes_repaired(read):
    found = read("x.txt", PROSE)
    assert found.documents == [(0, 1, PROSE[3:].decode(errors="replace"))]


def test_lines_that_are_not_blank_are_documents(read):
    found = read("x.txt", PROSE, documents="line")
    assert found.documents == [
        (0, 1, "one"),
        (0, 2, "two"),
        (0, 5, "three \ufffd"),
        (0, 9, "four"),
        (0, 10, "five"),
    ]


def test_paragraphs_end_at_blank_lines_and_are_numbered_by_their_first(read):
    found = read("x.txt", PROSE, documents="paragraph")
    assert found.documents == [(0, 1, "one\ntwo"), (0, 5, "three \ufffd"), (0, 9, "four\nfive")]


@pytest.mark.parametrize("documents", ["line", "paragraph"])
@pytest.mark.parametrize("unit_bytes", range(1, 60))
def test_any_division_gives_the_same(read, documents, unit_bytes):
    content = PROSE + b"\n\n\nsix\n\xef\xbb\xbfseven\n"
    whole = read("x.txt", content, documents=documents)
    divided = read("x.txt", content, documents=documents, unit_bytes=unit_bytes)
    assert divided.units == -(-len(content) // unit_bytes)
    assert divided.documents == whole.documents


@pytest.mark.parametrize("unit_bytes", [5, 17, 1000])
@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_documents_over_the_limit_are_set_aside(read, documents, unit_bytes):
    content = b"short\n\n" + b"x" * 30 + b"\n" + b"y" * 30 + b"\n\nend"
    limits = Limits(document_bytes={"file": 60, "line": 29, "paragraph": 60}[documents])
    found = read("x.txt", content, documents=documents, limits=limits, unit_bytes=unit_bytes)
    bad = {"file": [1], "line": [3, 4], "paragraph": [3]}[documents]
    assert [(line, reason) for _, line, reason in found.rejected] == [(n, "too_long") for n in bad]
    assert found.texts == ([] if documents == "file" else ["short", "end"])


@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_a_file_of_blanks_has_no_documents(read, documents):
    assert not read("x.txt", b" \n\t\r\n\n", documents=documents).documents


@pytest.mark.parametrize("documents", ["file", "line", "paragraph"])
def test_documents_that_are_not_utf8_are_counted(tmp_path, documents):
    path = tmp_path / "x.txt"
    path.write_bytes(b"caf\xe9\n\ncaf\xc3\xa9\n\nna\xefve \xff\n")
    sources = (Source(files=(str(path),), documents=documents),)
    inputs = list_inputs(sources)
    counts: list[tuple[int, int]] = []
    found = read_unit(
        *(plan_units(inputs)[0], inputs),
        sources=sources,
        limits=Limits(),
        reject=lambda bad: None,
        repaired=lambda input, number: counts.append((input, number)),
    )
    texts = [text for batch in found for text in batch.strings()]
    assert sum(number for _, number in counts) == sum("\ufffd" in text for text in texts)
    assert sum(number for _, number in counts) == (1 if documents == "file" else 2)
