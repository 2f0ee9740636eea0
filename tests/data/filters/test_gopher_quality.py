"""The quality rules against their definition in plain Python."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.filters.gopher_quality import STOP_WORDS, judge, measures
from meshwright.data.settings import GopherQuality
from meshwright.data.words.table import Table

LOOSE = GopherQuality(min_words=3, max_words=30)
PIECES = [
    *("the", "be", "to", "of", "word", "Have", "x", "1234", "#", "...", "....", "......", "…"),
    *("-", "•", "--", "|", "\n", "\n", "\n\n", " ", "  ", "3.5", "naïve", "你好", "ไทย", "don't"),
    *("a_b", "e\u0301"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join)
GLUED = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
UNSPACED = re.compile("[\u4e00-\u9fff\u0e00-\u0e7f]")


def words_of(text: str) -> list[str]:
    table = Table.of(documents_of([text]))
    at = zip(table.word_start, table.word_length, strict=True)
    return [text[start : start + length] for start, length in at]


def plain(text: str, settings: GopherQuality) -> dict[str, float]:
    """The figures by the definition; NaN where a rule does not apply."""
    words = words_of(text)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    english = 2 * sum(bool(UNSPACED.match(word)) for word in words) <= len(words)
    stop = len(set(STOP_WORDS) & {word.lower() for word in words})
    symbols = max(text.count("#"), text.count("...") + text.count("…"))
    bullets = sum(line[0] in "-•" for line in lines)
    ellipses = sum(line.endswith(("...", "…")) for line in lines)
    chunks = text.split()
    alphabetic = sum(any(c.isalpha() for c in chunk) for chunk in chunks)
    figures = {
        "words": len(words),
        "word_length": sum(map(len, words)) / max(len(words), 1) if english else math.nan,
        "symbols": symbols / max(len(words), 1),
        "bullets": bullets / max(len(lines), 1),
        "ellipses": ellipses / max(len(lines), 1),
        "alphabetic": alphabetic / len(chunks) if chunks else math.nan,
        "stop_words": stop if english else math.nan,
    }
    return {f"gopher_quality.{name}": float(value) for name, value in figures.items()}


@given(st.lists(st.one_of(TEXTS, GLUED), max_size=6))
def test_figures_are_those_of_the_definition(texts: list[str]) -> None:
    found = measures(Table.of(documents_of(texts)), LOOSE)
    for index, text in enumerate(texts):
        expected = plain(text, LOOSE)
        assert [m.reason for m in found] == list(expected)
        for measure in found:
            assert measure.values[index] == pytest.approx(expected[measure.reason], nan_ok=True)


def test_the_last_letter_of_a_batch_counts() -> None:
    found = measures(Table.of(documents_of(["12x", "34x"])), LOOSE)
    alphabetic = next(m for m in found if m.reason == "gopher_quality.alphabetic")
    assert alphabetic.values.tolist() == [1.0, 1.0]


PROSE = "the quick brown fox and the lazy dog of the house with that have been " * 8


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (PROSE, []),
        ("too short to be of use with that", ["words"]),
        ("to be or " * 40_000, ["words", "word_length"]),
        ("of the and " + "incomprehensibilities " * 60, ["word_length"]),
        (PROSE + "# " * 40, ["symbols", "alphabetic"]),
        ("\n".join(["- " + PROSE[:70]] * 20), ["bullets"]),
        ("\n".join([PROSE[:70] + "..."] * 3 + [PROSE]), ["ellipses"]),
        (PROSE + "| " * 60, ["alphabetic"]),
        ("quick brown fox jumps over lazy dogs " * 10, ["stop_words"]),
        ("人工智能正在改变世界的许多方面" * 10, []),
        ("人工智能" * 5, ["words"]),
    ],
)
def test_each_rule(text: str, reasons: list[str]) -> None:
    verdict = judge(Table.of(documents_of([PROSE, text])), GopherQuality())
    assert [reason for reason, mask in verdict.items() if mask[1]] == [
        f"gopher_quality.{name}" for name in reasons
    ]
    assert not any(mask[0] for mask in verdict.values())


def test_an_ellipsis_does_not_reach_over_documents_or_lines() -> None:
    texts = ["a b..", ".", "..\n.", "...", "a\n..."]
    by_reason = {m.reason: m.values for m in measures(Table.of(documents_of(texts)), LOOSE)}
    assert by_reason["gopher_quality.ellipses"].tolist() == [0, 0, 0, 1, 0.5]
    assert by_reason["gopher_quality.symbols"].tolist() == [0, 0, 0, 1, 1]


def test_no_documents() -> None:
    assert all(not len(mask) for mask in judge(Table.of(documents_of([])), LOOSE).values())


def test_limits_are_inclusive() -> None:
    texts = ["a b c", "a b", " ".join("a" * 30), " ".join("a" * 31)]
    mask = judge(Table.of(documents_of(texts)), LOOSE)["gopher_quality.words"]
    assert np.array_equal(mask, [False, True, False, True])
