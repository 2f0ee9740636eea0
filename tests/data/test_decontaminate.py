from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.base.errors import InvalidInput
from meshwright.data.decontaminate import find, index_of, judge, run_hashes, run_hashes_at
from meshwright.data.documents import documents_of
from meshwright.data.settings import Decontaminate
from meshwright.data.words.table import Table

QUESTION = (
    "Which of these rivers flows through the largest number of different countries in Europe today?"
)
SHORT = "The Danube flows through ten of them"  # 7 words
NINE = "Name the river that flows through the most countries"
TEN = "Name the river that flows through the most countries please"


def write(path: Path, records: list[object]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def dropped(texts: list[str], settings: Decontaminate) -> list[bool]:
    mask: list[bool] = judge(Table.of(documents_of(texts)), index_of(settings))[
        "contaminated"
    ].tolist()
    return mask


@pytest.fixture
def questions(tmp_path: Path) -> Decontaminate:
    records = [{"question": QUESTION, "answer": SHORT}, {"question": NINE, "meta": {"id": [TEN]}}]
    return Decontaminate(files=(write(tmp_path / "test.jsonl", records),))


def test_documents_that_share_a_run_of_words_go(questions: Decontaminate) -> None:
    words = QUESTION.split()
    texts = [
        f"Before it. {QUESTION} After it.",
        "x " + " ".join(words[1:14]) + " y",  # 13 words of it
        "x " + " ".join(words[:12]) + " y",  # 12
        QUESTION.upper().replace(" ", ",\n"),
        " ".join(reversed(words)),
        "",
        "nothing of the kind",
    ]
    assert dropped(texts, questions) == [True, True, False, True, False, False, False]


def test_short_texts_are_sought_whole_and_shorter_ones_not_at_all(questions: Decontaminate) -> None:
    texts = [f"so {NINE} now", " ".join(NINE.split()[:8]), f"a {SHORT} b", f"so: {TEN}"]
    assert dropped(texts, questions) == [True, False, False, True]
    assert list(index_of(questions).too_short.values()) == [1]


def test_runs_do_not_cross_documents_or_texts(questions: Decontaminate) -> None:
    words = QUESTION.split()
    assert dropped([" ".join(words[:7]), " ".join(words[7:])], questions) == [False, False]
    assert dropped([f"{' '.join(words[-8:])} {SHORT}"], questions) == [False]
    assert dropped([NINE[:30], NINE[30:]], questions) == [False, False]


def test_hits_name_the_text_they_were_found_in(questions: Decontaminate) -> None:
    table = Table.of(documents_of(["one two", f"three {TEN}", QUESTION]))
    index = index_of(questions)
    hits = find(table, index)
    assert set(hits.document.tolist()) == {1, 2}
    first = int(np.flatnonzero(hits.document == 2)[0])
    item = index.items[hits.item[first]]
    assert (item.record, item.field) == (1, "question")
    assert str(item).endswith("test.jsonl, record 1, question")
    assert hits.word[hits.document == 1].min() == 3  # after "one two three"
    assert (np.diff(hits.word) >= 0).all()


def test_fields_and_nested_fields(tmp_path: Path) -> None:
    records = [{"q": QUESTION, "meta": {"text": [TEN, 3, None]}}, {"q": "x"}]
    path = write(tmp_path / "t.jsonl", records)
    texts = [QUESTION, TEN]
    assert dropped(texts, Decontaminate(files=(path,))) == [True, True]
    assert dropped(texts, Decontaminate(files=(path,), fields=("q",))) == [True, False]
    assert dropped(texts, Decontaminate(files=(path,), fields=("meta.text",))) == [False, True]
    with pytest.raises(
        InvalidInput, match="no text of 8 words or more in the fields nope"
    ) as caught:
        index_of(Decontaminate(files=(path,), fields=("nope",)))
    assert caught.value.findings[0].file == path


def test_text_files_and_compressed_ones(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"short\n\n{TEN}\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write(json.dumps({"t": QUESTION}))
    settings = Decontaminate(files=(str(tmp_path / "*.txt"), str(tmp_path / "b.jsonl.gz")))
    assert dropped([TEN, QUESTION, "other"], settings) == [True, True, False]
    assert [item.record for item in index_of(settings).items] == [2, 1]


def test_the_length_of_runs_is_a_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{"t": QUESTION}, {"t": "one two three four"}])
    four = " ".join(QUESTION.split()[3:7])
    assert dropped([four, "one two three four"], Decontaminate(files=(path,), ngram_words=4)) == [
        True,
        True,
    ]
    assert dropped([four], Decontaminate(files=(path,), ngram_words=5)) == [False]


def test_a_changed_file_is_read_again(tmp_path: Path, questions: Decontaminate) -> None:
    before = index_of(questions)
    assert index_of(questions) is before
    write(tmp_path / "test.jsonl", [{"question": QUESTION}])
    changed = index_of(questions)
    assert len(changed.items) == 1 < len(before.items)


@pytest.mark.parametrize("content", ["", "{}\n", '{"a": 3}\n'])
def test_a_test_set_without_text_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.jsonl").write_text(content)
    with pytest.raises(InvalidInput, match="no text of 8 words"):
        index_of(Decontaminate(files=(str(tmp_path / "t.jsonl"),)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        index_of(Decontaminate(files=(str(tmp_path / "nowhere.jsonl"),)))


def defined(words: list[int], count: int) -> list[int]:
    """The polynomial, word by word."""
    out = []
    for start in range(len(words) - count + 1):
        total = 0
        for word in words[start : start + count]:
            total = (total * 0x9E3779B97F4A7C15 + word) % 2**64
        out.append(total)
    return out


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40), st.integers(1, 20))
def test_run_hashes_are_the_polynomial(words: list[int], count: int) -> None:
    column = np.array(words, dtype=np.uint64)
    expected = defined(words, count)
    assert run_hashes(column, count).tolist() == expected
    places = np.arange(len(expected))
    assert run_hashes_at(column, places, count).tolist() == expected


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Decontaminate]:
    texts = ["a b a a b b a b", "b b b b a a a a b b a", "a a a a a a a a a a a a a a", "b a"]
    path = tmp_path_factory.mktemp("letters") / "t.jsonl"
    return texts, Decontaminate(files=(write(path, [{"t": text} for text in texts]),))


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=40), max_size=4))
def test_judge_is_what_the_definition_says(
    letters: tuple[list[str], Decontaminate], documents: list[list[str]]
) -> None:
    texts, settings = letters
    sought = []
    for text in texts:
        words = text.split()
        if len(words) >= 13:
            sought += [f" {' '.join(words[i : i + 13])} " for i in range(len(words) - 12)]
        elif len(words) >= 8:
            sought.append(f" {text} ")
    joined = [" ".join(words) for words in documents]
    expected = [any(run in f" {text} " for run in sought) for text in joined]
    assert dropped(joined, settings) == expected


def test_a_test_set_of_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"one two three four five six seven eight\n" + "né à\n".encode("latin-1"))
    with pytest.raises(InvalidInput) as caught:
        index_of(Decontaminate(files=(str(path),)))
    [finding] = caught.value.findings
    assert (finding.line, finding.message) == (2, "not valid UTF-8")
    assert "iconv" in finding.hint
