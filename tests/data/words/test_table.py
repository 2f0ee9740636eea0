"""The table of words against a definition that goes character by character."""

# ruff: noqa: RUF001 - letters of other scripts are meant

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.words.characters import KINDS, characters
from meshwright.data.words.table import Table

SAMPLES = [
    "Hello, World! don't stop: well-known snake_case 3.14",
    "Größe ſtraße İstanbul \N{KELVIN SIGN}elvin ÉCOLE école ẞ ß",
    "你好吗world กี่ a かな 한국어 문장",
    "❤\ufe0flove x\u0301y \u0301 \u0301\u0301a می\u200cخواهم",
    "",
    "abc",
    "def",
    "a" * 100 + " " + "é" * 77,
    "\U00010400 \U0001d518x \U0010fffd",
    "tab\tnewline\nreturn\rnext\x85line\u2028x",
]
PIECES = st.sampled_from("aAbZ09 _'-.\n\x00éÉß\u0301\u200d\ufe0fñ你好ก\u0e35\u0e48かー한中❤😀𐐀")
TEXTS = st.lists(st.one_of(st.text(PIECES, max_size=40), st.text(max_size=20)), max_size=8)


def kind_of(character: str) -> str:
    code = ord(character)
    if code < 0x80:
        return "letter" if character.isalpha() else "number" if character.isdigit() else "other"
    return KINDS[int(characters().kind[code]) - 0xC0]


def words_of(text: str) -> list[tuple[int, int]]:
    """(start, stop) of each word, by the definition."""
    found: list[tuple[int, int]] = []
    before = ""  # what the word so far ends in, "" outside of words
    for place, character in enumerate(text):
        kind = kind_of(character)
        if kind in ("mark", "unspaced_mark"):
            if before:
                found[-1] = (found[-1][0], place + 1)
                before = kind
        elif kind in ("letter", "number", "unspaced"):
            joins = before not in ("", "unspaced", "unspaced_mark") and kind != "unspaced"
            found[-1:] = [(found[-1][0], place + 1)] if joins else [*found[-1:], (place, place + 1)]
            before = kind
        else:
            before = ""
    return found


def fold(text: str) -> str:
    return "".join(
        chr(ord(c) + int(characters().fold[ord(c)])) if c > "\x7f" else c.lower() for c in text
    )


def found(table: Table, index: int) -> list[tuple[int, int]]:
    """The same from the table."""
    chosen = slice(table.word_bounds[index], table.word_bounds[index + 1])
    starts = table.word_start[chosen] - table.bounds[index]
    return [(int(a), int(a + n)) for a, n in zip(starts, table.word_length[chosen], strict=True)]


def texts_encoded(texts: list[str]) -> list[str]:
    return [text.encode("utf-8", "ignore").decode() for text in texts]


@given(TEXTS)
def test_words_are_those_of_the_definition(texts: list[str]) -> None:
    texts = texts_encoded(texts)
    table = Table.of(documents_of(texts))
    assert [found(table, i) for i in range(len(texts))] == [words_of(text) for text in texts]
    assert np.diff(table.bounds).tolist() == [len(text) for text in texts]


def test_words_of_samples() -> None:
    table = Table.of(documents_of(SAMPLES))
    cut = [[text[a:b] for a, b in found(table, i)] for i, text in enumerate(SAMPLES)]
    assert cut[0] == [
        "Hello",
        "World",
        "don",
        "t",
        "stop",
        "well",
        "known",
        "snake",
        "case",
        "3",
        "14",
    ]
    assert cut[2] == [*"你好吗", "world", "กี่", "a", *"かな", "한국어", "문장"]
    assert cut[3] == ["love", "x\u0301y", "a", "می\u200cخواهم"]
    assert cut[5:7] == [["abc"], ["def"]]


@given(TEXTS)
def test_hash_is_equal_exactly_where_the_folded_words_are(texts: list[str]) -> None:
    texts = texts_encoded([*SAMPLES, *texts])
    table = Table.of(documents_of(texts))
    words = [fold(text[a:b]) for i, text in enumerate(texts) for a, b in found(table, i)]
    by_word: dict[str, int] = {}
    for word, value in zip(words, table.word_hash.tolist(), strict=True):
        assert by_word.setdefault(word, value) == value
    assert len(set(by_word.values())) == len(by_word)


@given(TEXTS, st.data())
def test_a_document_has_the_same_words_in_any_batch(texts: list[str], data: st.DataObject) -> None:
    texts = texts_encoded([*texts, "plain", "Ünïcode"])
    whole = Table.of(documents_of(texts))
    cut = data.draw(st.integers(0, len(texts)))
    parts = [Table.of(documents_of(part)) for part in (texts[:cut], texts[cut:])]
    assert np.array_equal(np.concatenate([p.word_hash for p in parts]), whole.word_hash)
    assert np.array_equal(
        np.concatenate([np.diff(p.word_bounds) for p in parts]), np.diff(whole.word_bounds)
    )


@given(TEXTS, st.data())
def test_take_equals_the_table_of_what_is_taken(texts: list[str], data: st.DataObject) -> None:
    texts = texts_encoded(texts)
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), dtype=bool
    )
    documents = documents_of(texts)
    taken, made = Table.of(documents).take(chosen), Table.of(documents.take(chosen))
    for name in ("characters", "bounds", "word_start", "word_length", "word_hash", "word_bounds"):
        assert np.array_equal(getattr(taken, name), getattr(made, name)), name


def test_no_documents_and_no_words() -> None:
    assert Table.of(documents_of([])).word_bounds.tolist() == [0]
    assert Table.of(documents_of(["", "..."])).word_bounds.tolist() == [0, 0, 0]


def test_an_accent_changes_the_hash_and_case_does_not() -> None:
    hashes = Table.of(documents_of(["resume résumé RÉSUMÉ Resume"])).word_hash.tolist()
    assert hashes[0] == hashes[3] != hashes[1] == hashes[2]


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17, 64, 1000])
def test_a_change_of_any_character_changes_the_hash(length: int) -> None:
    base = "x" * length
    words = [base, *(base[:i] + "y" + base[i + 1 :] for i in range(length)), base + "x", base[1:]]
    assert len(set(Table.of(documents_of([" ".join(words)])).word_hash.tolist())) == len(words)


def test_places_of_letters_beyond_ascii_count() -> None:
    letters = [chr(code) for code in range(0x430, 0x450)]
    words = [a + b for a in letters for b in letters] + [f"{a}x" for a in letters]
    assert len(set(Table.of(documents_of([" ".join(words)])).word_hash.tolist())) == len(words)
