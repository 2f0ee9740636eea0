"""The repetition rules against their definition in plain Python, on made and on real text."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.filters.gopher_repetition import judge
from meshwright.data.settings import GopherRepetition
from meshwright.data.words.table import Table

SETTINGS = GopherRepetition()
PHRASES = [
    *("the cat sat on the mat", "the cat", "A line, twice!", "é ü", "\n", "\n\n", "x = y + z;"),
    *("one two three four five", "unique", "another", "words", "here", "你好世界", "(a) (b)"),
    "The  Cat",
]
TEXTS = st.lists(st.sampled_from(PHRASES), max_size=60).map(" ".join)
LINED = st.lists(st.sampled_from(PHRASES), max_size=60).map("\n".join)


def pieces_of(text: str) -> tuple[list[str], list[int]]:
    """Folded words, and the characters but white space from each to the next."""
    table = Table.of(documents_of([text]))
    starts = table.word_start.tolist()
    at = zip(starts, table.word_length.tolist(), strict=True)
    words = [text[start : start + length].lower() for start, length in at]
    stops = [*starts[1:], len(text)]
    return words, [
        len("".join(text[a:b].split())) for a, b in zip(starts, stops[: len(starts)], strict=True)
    ]


def of_parts(parts: list[str], name: str, length: int) -> dict[str, float]:
    repeated = [part for place, part in enumerate(parts) if part in parts[:place]]
    return {
        f"{name}s": len(repeated) / max(len(parts), 1),
        f"{name}_characters": sum(map(len, repeated)) / max(length, 1),
    }


def paragraphs_of(text: str) -> list[str]:
    lines = [line if line.strip() else "" for line in text.split("\n")]
    groups = "\n".join(lines).split("\n\n")
    return [group.strip("\n") for group in groups if group.strip("\n")]


def top(words: list[str], weights: list[int], n: int) -> int:
    runs = [tuple(words[place : place + n]) for place in range(len(words) - n + 1)]
    run, count = Counter(runs).most_common(1)[0] if runs else ((), 0)
    places = [place for place, found in enumerate(runs) if found == run] if count > 1 else []
    return sum(sum(weights[place : place + n]) for place in places)


def repeated(words: list[str], weights: list[int], n: int) -> int:
    seen, inside = set(), set()
    for place in range(len(words) - n + 1):
        run = tuple(words[place : place + n])
        inside.update(range(place, place + n) if run in seen else ())
        seen.add(run)
    return sum(weights[place] for place in inside)


def plain(text: str) -> set[str]:
    """The reasons to drop a text by the definition."""
    words, weights = pieces_of(text)
    length = max(len(text), 1)
    lines = [line for line in text.split("\n") if line.strip()]
    figures = of_parts(lines, "line", length) | of_parts(paragraphs_of(text), "paragraph", length)
    figures |= {f"top_{n}_gram": top(words, weights, n) / length for n in (2, 3, 4)}
    figures |= {f"duplicate_{n}_grams": repeated(words, weights, n) / length for n in range(5, 11)}
    limits = {
        name: getattr(SETTINGS, name, getattr(SETTINGS, f"duplicate_{name}", None))
        for name in figures
    }
    return {f"gopher_repetition.{name}" for name, value in figures.items() if value > limits[name]}


def found(texts: list[str]) -> list[set[str]]:
    verdict = judge(Table.of(documents_of(texts)), SETTINGS)
    return [{reason for reason, mask in verdict.items() if mask[i]} for i in range(len(texts))]


@given(st.lists(st.one_of(TEXTS, LINED), max_size=5))
@settings(max_examples=200)
def test_reasons_are_those_of_the_definition(texts: list[str]) -> None:
    assert found(texts) == [plain(text) for text in texts]


def test_reasons_on_real_text() -> None:
    """Sources of the standard library: enough repetition to break every n-gram rule somewhere."""
    folder = Path(json.__file__).parent.parent
    files = sorted(folder.glob("*.py"))[:60] + sorted((folder / "encodings").glob("*.py"))[:40]
    texts = [path.read_text(encoding="utf-8", errors="replace")[:20_000] for path in files]
    expected = [plain(text) for text in texts]
    assert found(texts) == expected
    assert {f"gopher_repetition.duplicate_{n}_grams" for n in range(5, 11)} <= set().union(
        *expected
    )


NOVEL = " ".join(f"word{n} thing{n * 7 % 100}" for n in range(100))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n".join(f"{NOVEL[20 * k : 20 * k + 15]}\nyes" for k in range(40)), "lines"),
        ("\n".join([NOVEL[:300], *("a long line that comes back",) * 6]), "line_characters"),
        ("\n\n".join(f"{NOVEL[40 * k : 40 * k + 35]}\n\nyes\nno" for k in range(20)), "paragraphs"),
        ("\n\n".join([NOVEL[:300], *("a long\nparagraph here",) * 6]), "paragraph_characters"),
        (" ".join(f"one {n} over and {n + 7} over and" for n in range(30)), "top_2_gram"),
        (" ".join(f"some {n} other phrase {n}" for n in range(30)), "top_2_gram"),
        (NOVEL[:200] + " a b c d e f g h i j k l m n o p" * 5, "duplicate_10_grams"),
        (NOVEL, None),
        ("", None),
        ("ha", None),
    ],
)
def test_each_rule(text: str, reason: str | None) -> None:
    [reasons] = found([text])
    assert f"gopher_repetition.{reason}" in reasons if reason else not reasons


def test_a_limit_of_zero_drops_any_repetition() -> None:
    strict = GopherRepetition(duplicate_10_grams=0)
    text = NOVEL + " " + " ".join(NOVEL.split()[:10])
    for shown, drops in ((text, True), (NOVEL, False), (" ".join(text.split()[:-1]), False)):
        verdict = judge(Table.of(documents_of([shown])), strict)
        assert bool(verdict["gopher_repetition.duplicate_10_grams"][0]) is drops
