"""`show --read` tells the figure and the limit, or the text of the test set that is shared."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from meshwright.data.building import build
from meshwright.data.settings import Build, Decontaminate, GopherQuality, Language, Output, Source
from meshwright.data.shards.manifest import Manifest
from meshwright.data.shards.origin import Origin
from meshwright.data.shards.show import locate
from meshwright.data.shards.why import why
from meshwright.data.stages.record import manifest_settings

QUESTION = "which of the twelve old bridges over the river was built by monks in winter"
GOOD = " ".join(f"Line {n} of the text and words that have to be with it." for n in range(20))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    files = {"a.jsonl": [GOOD, "four words of the"], "b.jsonl": [f"{GOOD} {QUESTION} {GOOD}", ""]}
    for name, texts in files.items():
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        (tmp_path / "a" / name).write_text("".join(lines))
    tests = [{"q": "something else that is asked of nobody here at any time"}, {"q": QUESTION}]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(one) + "\n" for one in tests))
    asked = Build(
        sources=(Source(files=(str(tmp_path / "a"),)),),
        gopher_quality=GopherQuality(),
        decontaminate=Decontaminate(files=(str(tmp_path / "test.jsonl"),)),
        output=Output(folder=str(tmp_path / "out")),
    )
    build(asked, engine="inline")
    return tmp_path / "out"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("a.jsonl:1", ""),
        ("a.jsonl:2", "4 words, at least 50"),
        ("b.jsonl:1", "shares a run of words with {tests}, record 2, q"),
        ("b.jsonl:2", "nothing left after cleaning"),
    ],
)
def test_what_was_measured_is_told_with_its_limit(out: Path, place: str, said: str) -> None:
    found = locate(out, place).why
    wanted = said.format(tests=out.parent / "test.jsonl")
    assert found.startswith(wanted)
    assert bool(found) == bool(said)


def test_documents_that_are_kept_have_no_figure(out: Path) -> None:
    table = pyarrow.parquet.read_table(out / "documents.parquet")
    rows = {(row["input"][-7:], row["line"]): row for row in table.to_pylist()}
    assert rows["a.jsonl", 1]["measured"] is None
    assert rows["a.jsonl", 2]["measured"] == 4
    assert rows["b.jsonl", 1]["measured"] is None
    assert [row["test_text"] is None for row in rows.values()] == [True, True, False, True]


@pytest.mark.parametrize(
    ("language", "score", "said"),
    [
        ("en", 0.41, "identified as en with 0.41, at least 0.65"),
        ("fr", 0.98, "identified as fr with 0.98, kept are en, de"),
        ("", 0.0, "no language found with 0.00, kept are en, de"),
    ],
)
def test_a_language_is_told_with_its_score(language: str, score: float, said: str) -> None:
    asked = Build(
        sources=(Source(files=("a",)),),
        language=Language(keep=("en", "de")),
        output=Output(folder="out"),
    )
    manifest = Manifest(tool="test", settings=json.loads(json.dumps(manifest_settings(asked))))
    assert why(origin(reason="language", language=language, measured=score), manifest) == said


def test_settings_that_cannot_be_read_leave_what_the_reason_says() -> None:
    found = origin(reason="gopher_quality.words", measured=3.0)
    for settings in ({}, {"sources": 3}, {"output": 7}):
        said = why(found, Manifest(tool="test", settings=settings))
        assert said == "too few or too many words"
    assert why(origin(reason="another"), Manifest(tool="test")) == ""


def origin(**given: object) -> Origin:
    nothing = dict.fromkeys(("measured", "test_text", "duplicate_of_input", "duplicate_of_line"))
    nothing |= dict.fromkeys(("similarity", "shard", "document", "tokens"))
    rest = {"input": "a", "line": 1, "id": "", "bytes": 1, "language": "", "copies": 0}
    return Origin(**nothing | rest | given)
