"""What is said of a mix: what bounds it, how often each source repeats, what is left of it."""

from __future__ import annotations

import pytest

from meshwright.data.shards.manifest import Manifest, SourceRecord
from meshwright.report.mixture import mixture_lines, repeats_of


def source(name: str, tokens: int, used: int, *, weight: float | None = 0.5) -> SourceRecord:
    return SourceRecord(
        name=name,
        weight=weight,
        documents=10,
        tokens=tokens + 100,
        text_bytes=1,
        train_documents=10,
        train_tokens=used,
        valid_documents=1,
        valid_tokens=100,
    )


def said(*sources: SourceRecord, tokens: float | None = None) -> list[str]:
    settings = {"mix": {"tokens": tokens, "max_repeats": 4.0}}
    return list(mixture_lines(Manifest(tool="t", settings=settings, sources=list(sources))))


def test_the_limit_of_repeats() -> None:
    assert said(source("web", 10_000, 4_000), source("code", 1000, 4_000)) == [
        "mix for training: code bounds it, used as often as mix.max_repeats = 4 allows",
        "  web: used 0.40 times, 6.00k of its 10.0k tokens (60.0%) unused",
        "  code: used 4.00 times, nothing unused",
    ]


def test_all_of_every_source() -> None:
    first, web, code = said(source("web", 3000, 3000), source("code", 1000, 3000))
    assert "every source is used whole; code" in first
    assert web.endswith("used 1.00 times, nothing unused")
    assert "3.00 times" in code


def test_a_total_that_was_asked_for() -> None:
    first, *_ = said(source("web", 3000, 500), source("code", 1000, 500), tokens=1000)
    assert first == "mix for training: mix.tokens = 1.00k bounds it; code is the scarcest"


def test_nothing_without_weights() -> None:
    assert said(source("web", 3000, 3000, weight=None)) == []


def test_repeats_are_of_what_is_not_held_out() -> None:
    assert repeats_of(source("a", 1000, 2500)) == pytest.approx(2.5)
