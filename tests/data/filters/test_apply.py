"""All filters of a build together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.base.errors import MeshwrightError
from meshwright.data.documents import documents_of
from meshwright.data.filters import apply, explain
from meshwright.data.filters.apply import told
from meshwright.data.reasons import CODES
from meshwright.data.settings import (
    C4,
    Build,
    FineWeb,
    GopherQuality,
    GopherRepetition,
    Output,
)

LOOSE = GopherQuality(min_words=5, min_stop_words=1, min_alphabetic_words=0.5)
WEB = FineWeb(max_short_lines=1, max_duplicate_line_characters=0.5)
BUILD = Build(
    sources=(),
    output=Output(folder="out"),
    gopher_quality=LOOSE,
    gopher_repetition=GopherRepetition(),
    fineweb=WEB,
)
WITH_C4 = Build(
    sources=(),
    output=Output(folder="out"),
    gopher_quality=LOOSE,
    gopher_repetition=GopherRepetition(),
    c4=C4(min_sentences=2),
    fineweb=WEB,
)
PHRASES = [
    *(
        "the cat sat on the mat.",
        "of",
        "It is a line.",
        "\n",
        "\n\n",
        "{",
        "…",
        "- ",
        "éa und über",
    ),
    *(
        "to be or not to be, that is the question.",
        "one two three",
        "你好世界。",
        "javascript",
        "123",
    ),
    *("Something else happened with them.", "And have we seen it?", "\ufe0f", "word " * 20),
]
TEXTS = st.lists(st.lists(st.sampled_from(PHRASES), max_size=30).map(" ".join), max_size=8)


def reasons_of(texts: list[str], build: Build) -> list[tuple[str, tuple[str, ...]]]:
    """For each document its text after the filters, and its reasons."""
    table, verdict = apply(documents_of(texts), build)
    return [
        (text, tuple(reason for reason, mask in verdict.items() if mask[index]))
        for index, text in enumerate(table.documents.strings())
    ]


@pytest.mark.parametrize("build", [BUILD, WITH_C4])
@given(texts=TEXTS, data=st.data())
@settings(max_examples=60)
def test_reasons_do_not_depend_on_the_batch(
    build: Build, texts: list[str], data: st.DataObject
) -> None:
    whole = reasons_of(texts, build)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    parts = [texts[a:b] for a, b in zip([0, *cuts], [*cuts, len(texts)], strict=True)]
    assert [one for part in parts for one in reasons_of(part, build)] == whole


def test_real_documents_one_by_one_and_together() -> None:
    folder = Path(__file__).parents[3]
    files = [*sorted((folder / "docs").rglob("*.md"))[:60], folder / "README.md"]
    texts = [path.read_text(encoding="utf-8") for path in files]
    texts += [text[:400] for text in texts]
    for build in (BUILD, WITH_C4):
        whole = reasons_of(texts, build)
        assert [reasons_of([text], build)[0] for text in texts] == whole
        assert any(reasons for _, reasons in whole)


@given(TEXTS)
@settings(max_examples=50)
def test_every_reason_has_a_code_an_order_and_an_explanation(texts: list[str]) -> None:
    table, verdict = apply(documents_of(texts), WITH_C4)
    assert [CODES[reason] for reason in verdict] == sorted(CODES[reason] for reason in verdict)
    for reason, mask in verdict.items():
        for index in np.flatnonzero(mask).tolist():
            said = explain(table, index, reason=reason, build=WITH_C4)
            assert "at least" in said or "at most" in said


def test_an_explanation_says_what_was_measured_and_the_limit() -> None:
    table, _ = apply(documents_of(["fine", "to be or not"]), BUILD)
    assert explain(table, 1, reason="gopher_quality.words", build=BUILD) == "4 words, at least 5"
    lines = documents_of(["\n".join(["the line of the whole"] * 4 + ["and another line."])])
    build = replace(BUILD, fineweb=None)  # which drops it first, for the same lines
    table, verdict = apply(lines, build)
    assert verdict["gopher_repetition.lines"].tolist() == [True]
    said = explain(table, 0, reason="gopher_repetition.lines", build=build)
    assert said == "60% of the lines repeat an earlier one, at most 30%"


def test_an_unknown_reason_is_refused() -> None:
    table, _ = apply(documents_of(["a"]), BUILD)
    with pytest.raises(MeshwrightError, match=r"c4\.sentences"):
        explain(table, 0, reason="c4.sentences", build=BUILD)


def test_a_build_without_filters_drops_nothing() -> None:
    documents = documents_of(["a", ""])
    table, verdict = apply(documents, Build(sources=(), output=Output(folder="out")))
    assert not verdict
    assert table.documents is documents


def test_a_document_is_given_its_first_filters_reasons_only() -> None:
    _, verdict = apply(documents_of(["the"]), BUILD)
    assert [reason for reason, mask in verdict.items() if mask[0]] == ["gopher_quality.words"]


@given(texts=TEXTS, data=st.data())
@settings(max_examples=60)
def test_what_was_measured_says_what_explain_says_in_any_batch(
    texts: list[str], data: st.DataObject
) -> None:
    measured = np.full(len(texts), -1, dtype=np.float32)
    table, verdict = apply(documents_of(texts), WITH_C4, measured=measured)
    first = [next((r for r, mask in verdict.items() if mask[i]), "") for i in range(len(texts))]
    assert [value >= 0 for value in measured.tolist()] == [reason != "" for reason in first]
    for index, reason in enumerate(first):
        if reason:
            said = explain(table, index, reason=reason, build=WITH_C4)
            assert told(float(measured[index]), reason, WITH_C4) == said
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, len(texts)], strict=True):
        parts.append(np.full(stop - start, -1, dtype=np.float32))
        apply(documents_of(texts[start:stop]), WITH_C4, measured=parts[-1])
    assert np.concatenate(parts).tolist() == measured.tolist()


def test_told_refuses_what_is_no_reason_of_the_build() -> None:
    with pytest.raises(MeshwrightError, match="is not a reason"):
        told(1.0, "contaminated", BUILD)
