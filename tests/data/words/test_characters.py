"""The table of characters against Python's own knowledge of Unicode."""

# ruff: noqa: RUF001 - letters of other scripts are meant

import sys
import unicodedata

import pytest

from meshwright.data.words.characters import BYTE, KINDS, LETTERS, SPACE, WORD, characters

EXPECTED = {
    "L": {"letter", "unspaced"},
    "N": {"number", "unspaced"},
    "M": {"mark", "unspaced_mark"},
    "Z": {"space"},
}


def kind_of(code: int) -> str:
    return KINDS[int(characters().kind[code]) - BYTE[KINDS[0]]]


def test_classes_agree_with_the_categories_of_this_python() -> None:
    """Categories of assigned characters hardly ever change between versions of Unicode."""
    wrong = [
        hex(code)
        for code in range(0x80, sys.maxunicode + 1)
        if (category := unicodedata.category(chr(code))[0]) in EXPECTED
        and kind_of(code) not in EXPECTED[category]
    ]
    assert len(wrong) < 20, wrong


def test_folds_agree_with_this_python() -> None:
    fold = characters().fold
    for code in range(0x80, 0x20000):
        folds = {form for form in (chr(code).casefold(), chr(code).lower()) if len(form) == 1}
        assert not folds or chr(code + int(fold[code])) in folds | {chr(code)}, hex(code)


@pytest.mark.parametrize(
    ("character", "kind"),
    [
        ("é", "letter"),
        ("你", "unspaced"),
        ("〇", "unspaced"),
        ("ー", "unspaced"),
        ("ก", "unspaced"),
        ("\u0e35", "unspaced_mark"),
        ("한", "letter"),
        ("\u0301", "mark"),
        ("\u200d", "mark"),
        ("\xa0", "space"),
        ("。", "terminal"),
        ("…", "ellipsis"),
        ("•", "bullet"),
        ("”", "quote"),
        ("€", "symbol"),
        ("\u2014", "punct"),
        ("๓", "number"),
        ("\ue000", "other"),
    ],
)
def test_class_of(character: str, kind: str) -> None:
    assert kind_of(ord(character)) == kind


def test_marking_tables_hold_ascii_and_classes() -> None:
    assert all(bool(WORD[ord(c)]) == c.isalnum() for c in map(chr, range(128)))
    assert all(bool(SPACE[ord(c)]) == c.isspace() for c in map(chr, range(128)))
    assert all(bool(LETTERS[ord(c)]) == c.isalpha() for c in map(chr, range(128)))
    assert WORD[BYTE["mark"]]
    assert not WORD[BYTE["punct"]]
