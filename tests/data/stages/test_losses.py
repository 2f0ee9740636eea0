"""An error about a source says what became of its documents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.building import build
from meshwright.data.settings import Build, Mix, Output, Source, TokenizerSource


def asked(folder: Path, tokenizer: Path, books: list[str]) -> Build:
    for name, texts in (("web", [f"page {n}" for n in range(50)]), ("books", books)):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{name}.jsonl").write_text(lines)
    return Build(
        sources=tuple(
            Source(files=(str(folder / f"{name}.jsonl"),), name=name, weight=0.5)
            for name in ("web", "books")
        ),
        tokenizer=TokenizerSource(file=str(tokenizer)),
        output=Output(folder=str(folder / "out")),
    )


def note_of(settings: Build) -> str:
    with pytest.raises(InvalidInput) as error:
        build(settings, engine="inline")
    (finding,) = error.value.findings
    assert "data stats" not in finding.hint
    (note,) = finding.notes
    return note


def test_a_source_of_which_nothing_is_left(tmp_path: Path, tokenizer_file: Path) -> None:
    note = note_of(asked(tmp_path, tokenizer_file, ["", "", "page 3"]))
    first, *rows = note.split("\n")
    assert first == "books: 3 documents read, 0 kept"
    assert [row.split()[:2] for row in rows] == [["2", "empty"], ["1", "exact_duplicate"]]


def test_a_source_that_would_repeat_too_often(tmp_path: Path, tokenizer_file: Path) -> None:
    settings = asked(tmp_path, tokenizer_file, ["", "a book"])
    note = note_of(replace(settings, mix=Mix(tokens=500, max_repeats=2)))
    assert note.startswith("books: 2 documents read, 1 kept\n")
    assert note.count("\n") == 1
