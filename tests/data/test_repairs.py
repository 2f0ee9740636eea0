"""What a build changed in texts is counted and told: nothing is repaired or masked in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.base.table import Table
from meshwright.data.building import build
from meshwright.data.settings import Build, Output, Pii, Source, TokenizerSource
from meshwright.data.shards.stats import stats
from meshwright.report.build import summary_page
from meshwright.report.shards import stats_page, stats_record


def made(folder: Path, **changes: object):
    settings = {
        "sources": (Source(files=(str(folder / "raw"),), documents="line"),),
        "output": Output(folder=str(folder / "out")),
    }
    return build(Build(**settings | changes), engine="inline")


def lines(folder: Path, manifest) -> tuple[str, str]:
    out = str(folder / "out")
    pages = summary_page(out, manifest), stats_page(out, stats(out))
    return tuple("\n".join(block for block in page if isinstance(block, str)) for page in pages)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def test_text_that_was_not_utf8_is_counted_by_file(raw: Path, tmp_path: Path) -> None:
    (raw / "a.txt").write_bytes(b"caf\xe9\nplain\nna\xefve\n")
    (raw / "b.txt").write_bytes("café\n".encode())
    manifest = made(tmp_path)
    assert [found.repaired for found in manifest.inputs] == [2, 0]
    assert manifest.facts["repaired"] == 2
    assert stats_record("out", stats(tmp_path / "out"))["repaired"] == 2
    for page in lines(tmp_path, manifest):
        assert "2 documents were not UTF-8" in page
        assert f"{raw}/a.txt (2)" in page
        assert "iconv" in page


def test_masked_values_are_counted_by_kind(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_text(json.dumps({"text": "a@gmail.com b@gmail.com 91.8.88.8"}) + "\n")
    manifest = made(tmp_path, pii=Pii(kinds=("email", "ip", "phone")))
    assert manifest.masked == {"email": 2, "ip": 1, "phone": 0}
    assert stats_record("out", stats(tmp_path / "out"))["masked"] == manifest.masked
    for page in lines(tmp_path, manifest):
        assert "masked: 2 e-mail addresses, 1 IP address, 0 phone numbers" in page


def test_nothing_is_said_of_what_was_not_done(raw: Path, tmp_path: Path) -> None:
    (raw / "a.txt").write_bytes(b"plain\n")
    for page in lines(tmp_path, made(tmp_path)):
        assert "masked" not in page
        assert "UTF-8" not in page


def test_a_field_that_is_not_there_is_told_with_those_that_are(raw: Path, tmp_path: Path) -> None:
    record = {"id": 3, "title": "short", "content": {"body": "a longer text", "n": 1}}
    (raw / "a.jsonl").write_text((json.dumps(record) + "\n") * 4)
    with pytest.raises(InvalidInput) as refused:
        made(tmp_path)
    first, *examples = refused.value.findings
    assert first.hint.endswith("--text-field NAME; those with text are content.body, title")
    assert len(examples) == 3


def test_latin_1_in_jsonl_is_told_with_the_way_out(raw: Path, tmp_path: Path) -> None:
    (raw / "a.jsonl").write_bytes(b'{"text":"caf\xe9"}\n')
    with pytest.raises(InvalidInput) as refused:
        made(tmp_path)
    assert "iconv -f WINDOWS-1252" in refused.value.findings[0].hint


def test_what_the_mix_left_out_is_told_beside_what_was_there_before(
    tmp_path: Path, corpus: Path, tokenizer_file: Path
) -> None:
    parts = [
        Source(name=f"part{n}", files=(f"{corpus}/part-{n}.jsonl",), weight=weight)
        for n, weight in enumerate((0.9, 0.1))
    ]
    asked = Build(
        sources=tuple(parts),
        tokenizer=TokenizerSource(file=str(tokenizer_file)),
        output=Output(folder=str(tmp_path / "out")),
    )
    manifest = build(asked, engine="inline")
    left_out = manifest.counts["mix"]
    before = sum(source.documents for source in manifest.sources)
    assert left_out
    assert before == manifest.counts[""] + left_out
    page = stats_page("out", stats(tmp_path / "out"))
    titles = [
        column.title for block in page if isinstance(block, Table) for column in block.columns
    ]
    assert "before the mix" in titles
    assert "kept" not in titles
    assert f"the mix left out {left_out:,} of the documents before it" in page
