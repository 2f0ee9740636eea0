# ruff: noqa: RUF001 - letters of many scripts are what is tested
from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.clean import unicode
from meshwright.data.documents import documents_of
from meshwright.data.settings import Clean

PLAIN = Clean()
EVERYTHING = Clean(normalize="nfc", rstrip_lines=True)


def one(text: str | bytes, settings: Clean = PLAIN) -> str:
    return unicode.repair(documents_of([text]), settings).string(0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\0b\x08c\x7fd", "abcd"),
        ("tab\there\nline", "tab\there\nline"),
        ("one\r\ntwo\rthree\r\r\n", "one\ntwo\nthree\n\n"),
        ("\ufeffhead\ufeff", "head"),
        ("next\x85line", "next\nline"),
        ("c1 \x80\x9f gone", "c1  gone"),
        ("\x1b[1;31mred\x1b[0m \x1b[Kend", "red end"),
        ("half \x1b\x1b[0m[0m", "half [0m"),
        ("page\x0c\x0b", "page"),
        ("", ""),
    ],
)
def test_controls_and_line_ends_are_repaired(before: str, after: str) -> None:
    assert one(before) == after


@pytest.mark.parametrize(
    "text",
    [
        "family: \U0001f468\u200d\U0001f469\u200d\U0001f467, heart \u2764\ufe0f",
        "flag \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "e\u0301 and a\u0308\u0323",
        "\u200fעברית\u200e and \u202bعربي\u202c",
        "می\u200cخواهم",
        "ไทย\u200bไทย soft\u00adhyphen no\u00a0break\u3000wide\u2028line",
        "ﬁ ２ ㎏",
        "  leading and trailing  \n\n\n",
    ],
)
def test_valid_text_stays(text: str) -> None:
    documents = documents_of([text, "plain"])
    assert unicode.repair(documents, PLAIN) is documents


def test_only_what_the_settings_say() -> None:
    off = Clean(strip_controls=False, newlines=False)
    assert one("a\0\r\nb\ufeff\x85", off) == "a\0\r\nb\ufeff\x85"
    assert one("a\0\r\nb", Clean(newlines=False)) == "a\r\nb"
    assert one("a\0\r\nb\x85", Clean(strip_controls=False)) == "a\0\nb\n"
    assert one("next\x85line", Clean(newlines=False)) == "next\x85line"


def test_normal_forms() -> None:
    assert one("e\u0301 ﬁ", Clean(normalize="nfc")) == "é ﬁ"
    assert one("e\u0301 ﬁ\u00a0", Clean(normalize="nfkc")) == "é fi "
    assert one("e\u0301 ﬁ\u00a0", Clean(normalize="nfkc", rstrip_lines=True)) == "é fi"


def test_ends_of_lines_lose_spaces_and_tabs_alone() -> None:
    settings = Clean(rstrip_lines=True)
    assert one("a \t\n  b\u00a0\n\n c  ", settings) == "a\n  b\u00a0\n\n c"
    assert one("a  \r\nb ", Clean(rstrip_lines=True, newlines=False)) == "a\r\nb"


def test_only_the_documents_that_need_it_change() -> None:
    texts = ["fine", "nul\0", "", "fine too é", "cr\r\n", "fine"]
    repaired = unicode.repair(documents_of(texts, input=3, ids=tuple("abcdef")), PLAIN)
    assert repaired.strings() == ["fine", "nul", "", "fine too é", "cr\n", "fine"]
    assert repaired.ids == tuple("abcdef")
    assert repaired.line.tolist() == [1, 2, 3, 4, 5, 6]
    assert set(repaired.input.tolist()) == {3}


def test_mojibake_is_mended_a_line_at_a_time() -> None:
    pytest.importorskip("ftfy")
    wrong = "l’été — naïve".encode().decode("cp1252")
    text = f"plain\n{wrong}\nété déjà correct\n"
    settings = Clean(mojibake=True)
    assert one(text, settings) == "plain\nl’été — naïve\nété déjà correct\n"
    assert one(text) == text


def test_markup_and_quotes_are_no_mojibake() -> None:
    pytest.importorskip("ftfy")
    text = "“quoted” &lt;b&gt; ﬁne ＡＢ \x1b"
    assert one(text, Clean(mojibake=True, strip_controls=False)) == text


junk = st.text(st.sampled_from("ab \t\n\r\0\x1b[0m\x7f\x85\x9fé\u0301\ufeff\u200d\u00a0ﬁ…Ã©â€"))
settings = st.builds(
    Clean,
    normalize=st.sampled_from(["none", "nfc", "nfkc"]),
    strip_controls=st.booleans(),
    newlines=st.booleans(),
    rstrip_lines=st.booleans(),
)


@given(st.lists(junk | st.text()), settings)
def test_repairing_twice_changes_nothing_more(texts: list[str], chosen: Clean) -> None:
    once = unicode.repair(documents_of(texts), chosen)
    again = unicode.repair(once, chosen)
    assert again.strings() == once.strings()


@given(junk | st.text())
def test_mending_twice_changes_nothing_more(text: str) -> None:
    pytest.importorskip("ftfy")
    once = one(text, Clean(mojibake=True))
    assert one(once, Clean(mojibake=True)) == once


@given(st.text(st.sampled_from("ab. \x85éÃÂ©â€™œŒ°Ѓвђ“”«²²×ØÙàá\xa0‚√≈†")) | st.text())
def test_lines_are_mended_as_the_library_mends_them(text: str) -> None:
    ftfy = pytest.importorskip("ftfy")
    expected = "\n".join(map(ftfy.fix_encoding, text.split("\n")))
    assert unicode._mended(text.encode(errors="ignore")).decode() == expected


@given(st.lists(junk | st.text()), settings)
def test_the_batch_says_the_same_as_one_document(texts: list[str], chosen: Clean) -> None:
    """Nothing that needs repair is missed by the pass over the batch."""
    whole = unicode.repair(documents_of(texts), chosen)
    assert whole.strings() == [unicode.repaired(t.encode(), chosen).decode() for t in texts]


@given(junk | st.text())
def test_nothing_forbidden_is_left(text: str) -> None:
    left = one(text, EVERYTHING)
    assert all(c in "\t\n" or unicodedata.category(c) != "Cc" for c in left)
    assert "\ufeff" not in left
    assert unicodedata.is_normalized("NFC", left)
    assert all(line == line.rstrip(" \t") for line in left.split("\n"))


def test_short_documents_are_dropped_by_characters() -> None:
    documents = documents_of(["", " \n\t", "\u00a0\u3000", "x", "éé", "ééé", "  ab  ", "abc\n"])
    dropped = unicode.judge(documents, Clean())["empty"]
    assert np.flatnonzero(dropped).tolist() == [0, 1, 2]
    dropped = unicode.judge(documents, Clean(min_characters=3))["empty"]
    assert np.flatnonzero(dropped).tolist() == [0, 1, 2, 3, 4, 6]


def test_long_blank_documents_are_empty() -> None:
    texts = [" " * 100_000, " " * 100_000 + "x", "\u3000" * 500, "x" * 99, "\n" * 300 + "y" * 100]
    dropped = unicode.judge(documents_of(texts), Clean(min_characters=100))["empty"]
    assert dropped.tolist() == [True, True, True, True, False]
    dropped = unicode.judge(documents_of(texts), Clean())["empty"]
    assert dropped.tolist() == [True, False, True, False, False]


@given(st.lists(st.text(st.sampled_from("a é\n\u3000\U0001f600"))), st.integers(0, 6))
def test_judge_counts_characters(texts: list[str], least: int) -> None:
    dropped = unicode.judge(documents_of(texts), Clean(min_characters=least))["empty"]
    assert dropped.tolist() == [len(text.strip()) < max(least, 1) for text in texts]
