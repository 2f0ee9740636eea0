"""Settings that are hardly meant are told, and only those."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.data.building import build
from meshwright.data.oddities import oddities_of
from meshwright.data.settings import Build, Mix, Output, Pack, Source, TokenizerSource
from meshwright.data.source.unit import Input

TOKENS = {"tokenizer": TokenizerSource(file="t.json")}
TINY, USUAL = Output(folder="o", shard_tokens=10), Output(folder="o")


def said(size: int = 1000, compression: str = "", **settings: object) -> list[str]:
    given = {"sources": (Source(files=("a",)),), "output": USUAL} | settings
    found = Input(path="a", source=0, format="jsonl", compression=compression, bytes=size, stamp="")
    return [
        f"{one.message} | {one.hint}"
        for one in oddities_of(Build(**given), [found])  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"pack": Pack(seq_len=512)}, "pack.seq_len"),
        ({"pack": Pack(strategy="padded", layout="rows")}, "pack.strategy, pack.layout"),
        ({"output": TINY}, "output.shard_tokens"),
        ({"sources": (Source(files=("a",), weight=0.5),)}, "source.weight"),
        ({"validation": 0.1}, "validation"),
    ],
)
def test_what_needs_tokens_without_a_tokenizer(settings: dict[str, object], named: str) -> None:
    (only,) = said(**settings)
    assert f"nothing heeds {named} | name one: --tokenizer" in only
    assert said(**(settings | {"output": USUAL}), **TOKENS) == []


def test_a_mix_without_weights() -> None:
    (only,) = said(mix=Mix(tokens=5))
    assert "nothing heeds mix | name one: --tokenizer" in only
    (only,) = said(mix=Mix(tokens=5, max_repeats=1), **TOKENS)
    assert "nothing heeds mix.tokens, mix.max_repeats | give the sources weights" in only
    weighted = (Source(files=("a",), weight=1.0),)
    assert said(mix=Mix(tokens=5), sources=weighted, **TOKENS) == []


def test_nothing_of_usual_settings() -> None:
    assert said() == said(size=10**12, **TOKENS) == []


def test_shards_of_less_than_a_row() -> None:
    (only,) = said(output=TINY, **TOKENS)
    assert "output.shard_tokens = 10 is less than a row of 4,096" in only


def test_very_many_shards() -> None:
    some = Output(folder="o", shard_tokens=5000)
    assert said(size=199 * 10**6, output=some, **TOKENS) == []
    (only,) = said(size=204 * 10**6, output=some, **TOKENS)
    assert "makes about 10.2k shards of four files each | set it to 510k or more" in only
    (packed,) = said(size=51 * 10**6, compression="gz", output=some, **TOKENS)
    assert packed == only


def test_they_are_told_by_a_build(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "some words"}\n')
    asked = Build(
        sources=(Source(files=(str(tmp_path / "a.jsonl"),)),),
        output=Output(folder=str(tmp_path / "out")),
        pack=Pack(seq_len=512),
    )
    told: list[str] = []
    build(asked, engine="inline", on_finding=lambda finding: told.append(finding.message))
    assert any("nothing heeds pack.seq_len" in message for message in told)
