"""The rules of C4 against their definition in plain Python."""

# ruff: noqa: RUF001 - signs of other scripts are meant

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.filters.c4 import JAVASCRIPT, POLICY, judge, remove_lines, sentences
from meshwright.data.settings import C4
from meshwright.data.words.table import Table

PIECES = [
    *("one", "two words", "A sentence. Another one!", "end.", "end...", "end…", "what?", '"so."'),
    *("said 'x'", "JavaScript", "terms of use", "Use Cookies", "privacy policy.", "cookie", "{"),
    *(
        "lorem ipsum",
        "x" * 12,
        "\n",
        "\n",
        "\n\n",
        "你好世界。",
        "”",
        "é",
        ") ",
        "\xa0",
        "e.g. this",
    ),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join)
GLUED = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
TERMINAL, CLOSING = set(".?!。"), set("\"')]”’»“」』")
UNSPACED = re.compile("[\u4e00-\u9fff]")


def wanted(line: str, settings: C4) -> bool:
    words, folded = line.split(), line.lower()
    ends = line.strip()[-1] in TERMINAL | set("\"'”") and not line.strip().endswith("...")
    count = len(words) + len(UNSPACED.findall(line))
    phrases = [*JAVASCRIPT] * settings.javascript_lines + [*POLICY] * settings.policy_lines
    return (
        (ends or not settings.terminal_punctuation)
        and count >= settings.min_words_per_line
        and (not settings.max_word_length or max(map(len, words)) <= settings.max_word_length)
        and not any(phrase.decode() in folded for phrase in phrases)
    )


def plain_lines(text: str, settings: C4) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    return "\n".join(line for line in lines if wanted(line, settings))


def plain_sentences(text: str) -> int:
    count = 0
    for line in (line.strip() for line in text.split("\n")):
        if not line:
            continue
        count += 1
        for place, character in enumerate(line):
            if character not in TERMINAL | {"…"}:
                continue
            behind = place + 1
            while behind < len(line) and behind < place + 4 and line[behind] in CLOSING:
                behind += 1
            if behind < len(line):
                follower = line[behind]
                free = character == "。" and follower not in TERMINAL | {"…"}
                count += follower.isspace() or free
    return count


SETTINGS = st.builds(
    C4,
    terminal_punctuation=st.booleans(),
    min_words_per_line=st.integers(0, 4),
    max_word_length=st.sampled_from([0, 8, 12, 1000]),
    javascript_lines=st.booleans(),
    policy_lines=st.booleans(),
)


@given(st.lists(st.one_of(TEXTS, GLUED), max_size=6), SETTINGS)
def test_lines_that_stay_are_those_of_the_definition(texts: list[str], settings: C4) -> None:
    documents = remove_lines(documents_of(texts), settings)
    assert documents.strings() == [plain_lines(text, settings) for text in texts]


@given(st.lists(st.one_of(TEXTS, GLUED), max_size=6))
def test_sentences_are_those_of_the_definition(texts: list[str]) -> None:
    found = sentences(Table.of(documents_of(texts)))
    assert found.tolist() == [plain_sentences(text) for text in texts]


@given(st.lists(st.one_of(TEXTS, GLUED), max_size=6))
def test_documents_that_go_are_those_of_the_definition(texts: list[str]) -> None:
    verdict = judge(Table.of(documents_of(texts)), C4())
    assert verdict["c4.lorem_ipsum"].tolist() == ["lorem ipsum" in t.lower() for t in texts]
    assert verdict["c4.curly_bracket"].tolist() == ["{" in text for text in texts]
    assert verdict["c4.sentences"].tolist() == [plain_sentences(text) < 5 for text in texts]


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("This is a whole sentence.", True),
        ("Does this stay here?", True),
        ('He said "so be it"', True),
        ("He said “so be it”", True),
        ("This trails off into...", False),
        ("This trails off too…", False),
        ("A heading without an end", False),
        ("Too short.", False),
        ("Please enable JavaScript to go on.", False),
        ("We use cookies for good reasons.", False),
        ("Read our terms of use before you leave.", False),
        ("A cookie is baked for a quarter of an hour.", True),
        ("One word " + "x" * 1001 + " is too long.", False),
        ("One word " + "x" * 1000 + " is not.", True),
        ("今天天气很好。", True),
        ("好。", False),
        ("    indented lines stay as they were.   ", True),
    ],
)
def test_each_line_rule(line: str, stays: bool) -> None:
    text = f"{line}\nThis one is always kept."
    [left] = remove_lines(documents_of([text]), C4()).strings()
    assert left == (text if stays else "This one is always kept.")


def test_a_document_may_become_empty_and_then_goes() -> None:
    documents = remove_lines(documents_of(["Menu", "", "Home\nAbout"], ids=["a", "b", "c"]), C4())
    assert documents.strings() == ["", "", ""]
    assert documents.ids == ("a", "b", "c")
    lenient = C4(min_sentences=-1)
    assert judge(Table.of(documents), lenient)["c4.sentences"].all()


def test_phrases_do_not_reach_over_documents_or_lines() -> None:
    texts = ["It ends in some java", "script and more of it.\nuse\ncookies. It is fine.", "lorem"]
    kept = remove_lines(documents_of(texts), C4(terminal_punctuation=False, min_words_per_line=0))
    assert kept.strings() == texts
    assert not judge(Table.of(documents_of([*texts, " ipsum"])), C4())["c4.lorem_ipsum"].any()


def test_rules_can_be_switched_off() -> None:
    text = "lorem ipsum { dolor }. One. Two. Three. Four."
    off = C4(lorem_ipsum=False, curly_bracket=False)
    assert not any(mask.any() for mask in judge(Table.of(documents_of([text])), off).values())
    assert sum(mask.any() for mask in judge(Table.of(documents_of([text])), C4()).values()) == 2


def test_terminal_punctuation_of_every_script_ends_a_line() -> None:
    marks = "。؟।።！？．"
    assert all(unicodedata.category(mark) == "Po" for mark in marks)
    documents = documents_of([f"three words here{mark}" for mark in marks])
    assert np.array_equal(remove_lines(documents, C4()).text, documents.text)
