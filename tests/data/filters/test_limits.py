"""Every limit of the filters has an effect of its own: none is accepted and passed over."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from meshwright.data.documents import documents_of
from meshwright.data.filters import apply
from meshwright.data.reasons import KEYS
from meshwright.data.settings import (
    Build,
    FineWeb,
    GopherQuality,
    GopherRepetition,
    Output,
    Source,
)

LINE = "- the cat sat on the mat and then the cat sat on the mat again ..."
TEXT = "\n\n".join([LINE, LINE, "# | - short\nA last line that ends well."])
KEY = {
    GopherQuality: "gopher_quality",
    GopherRepetition: "gopher_repetition",
    FineWeb: "fineweb",
}
LOOSE: dict[type, dict[str, Any]] = {
    GopherQuality: {
        "min_words": 0,
        "max_words": 10**6,
        "min_mean_word_length": 0.0,
        "max_mean_word_length": 1e6,
        "max_symbol_ratio": 1e6,
        "max_bullet_lines": 1.0,
        "max_ellipsis_lines": 1.0,
        "min_alphabetic_words": 0.0,
        "min_stop_words": 0,
    },
    GopherRepetition: {field.name: 1.0 for field in fields(GopherRepetition)},
    FineWeb: {
        "min_punctuated_lines": 0.0,
        "max_short_lines": 1.0,
        "short_line_characters": 30,
        "max_duplicate_line_characters": 1.0,
        "max_newlines_per_word": 1e6,
    },
}
TIGHT: dict[type, dict[str, Any]] = {
    GopherQuality: {
        **dict.fromkeys(LOOSE[GopherQuality], 0),
        "min_words": 1000,
        "min_mean_word_length": 100.0,
        "min_alphabetic_words": 1.0,
        "min_stop_words": 8,
    },
    GopherRepetition: dict.fromkeys(LOOSE[GopherRepetition], 0.0),
    FineWeb: {**dict.fromkeys(LOOSE[FineWeb], 0.0), "min_punctuated_lines": 1.0},
}
CASES = [
    (table, name)
    for table in LOOSE
    for name in LOOSE[table]
    if name != "short_line_characters"  # no limit itself, but what a short line is
]


def reasons(settings: Any) -> set[str]:
    """Why the text goes."""
    build = Build(
        sources=(Source(files=("a",)),),
        output=Output(folder="out"),
        **{KEY[type(settings)]: settings},
    )
    _, verdict = apply(documents_of([TEXT]), build)
    return {reason for reason, mask in verdict.items() if mask.any()}


def test_every_limit_is_tried() -> None:
    for table, loose in LOOSE.items():
        assert set(loose) == set(TIGHT[table]) == {field.name for field in fields(table)}


@pytest.mark.parametrize("table", LOOSE)
def test_loose_limits_drop_nothing(table: type) -> None:
    assert reasons(table(**LOOSE[table])) == set()


@pytest.mark.parametrize(("table", "name"), CASES)
def test_one_limit_drops_for_its_own_reason(table: type, name: str) -> None:
    tight = table(**{**LOOSE[table], name: TIGHT[table][name]})
    (reason,) = reasons(tight)
    assert f"{KEY[table]}.{name}" in KEYS[reason]


def test_what_a_short_line_is() -> None:
    settings = {**LOOSE[FineWeb], "max_short_lines": 0.5}
    assert reasons(FineWeb(**{**settings, "short_line_characters": 20})) == set()
    assert reasons(FineWeb(**{**settings, "short_line_characters": 100})) == {"fineweb.short_lines"}
