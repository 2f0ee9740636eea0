"""Digests of a tokenizer's files: of all that decide about ids, and of nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshwright.base.errors import InvalidInput
from meshwright.data.settings import Build, Decontaminate, Output, Source, TokenizerSource
from meshwright.data.work.digests import digests_of


def digest(file: Path) -> str:
    build = Build(
        sources=(Source(files=("a",)),),
        output=Output(folder="out"),
        tokenizer=TokenizerSource(file=str(file)),
    )
    ((name, found),) = digests_of(build)
    assert name == "tokenizer"
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    return tmp_path


@pytest.mark.parametrize("given", [".", "tokenizer.json"])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_config_beside_the_vocabulary_counts(folder: Path, given: str, name: str) -> None:
    before = digest(folder / given)
    (folder / name).write_text('{"eos_token": "a"}')
    assert digest(folder / given) != before


def test_weights_beside_the_vocabulary_are_not_read(folder: Path) -> None:
    before = digest(folder)
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"weights")
    (folder / "README.md").write_text("new")
    assert digest(folder) == before


def test_merges_count_by_whichever_half_is_given(tmp_path: Path) -> None:
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    vocabulary.write_text('{"a": 0}')
    merges.write_text("a b")
    before = digest(vocabulary)
    assert digest(merges) == before
    merges.write_text("a c")
    assert digest(vocabulary) != before


def test_a_file_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such file"):
        digest(tmp_path / "tokenizer.json")


def test_a_test_set_counts_by_its_content(tmp_path: Path) -> None:
    asked = Build(
        sources=(Source(files=("a",)),),
        output=Output(folder="out"),
        decontaminate=Decontaminate(files=(str(tmp_path / "test.jsonl"),)),
    )
    path = tmp_path / "test.jsonl"
    path.write_text('{"question": "why"}\n')
    before = digests_of(asked)
    os.utime(path, (1, 1))
    assert digests_of(asked) == before
    path.write_text('{"question": "who"}\n')
    os.utime(path, (1, 1))
    assert digests_of(asked) != before
