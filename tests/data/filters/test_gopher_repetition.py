"""The repetition rules against their definition in plain Python, on made and on real text."""

import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.filters.gopher_repetition import judge
from meshwright.data.settings import GopherRepetition
from meshwright.data.words.table import Table

SETTINGS = GopherRepetition()
LEVELS = range(5, 11)
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


def figures_of(text: str) -> dict[str, float]:
    """Every figure by the definition, in the order of the rules."""
    words, weights = pieces_of(text)
    length = max(len(text), 1)
    lines = [line for line in text.split("\n") if line.strip()]
    figures = of_parts(lines, "line", length) | of_parts(paragraphs_of(text), "paragraph", length)
    figures |= {f"top_{n}_gram": top(words, weights, n) / length for n in (2, 3, 4)}
    return figures | {f"duplicate_{n}_grams": repeated(words, weights, n) / length for n in LEVELS}


def plain(text: str, limits: GopherRepetition = SETTINGS) -> list[str]:
    """The reasons to drop a text; a later kind of rule is asked only where none before drops it."""
    figures = figures_of(text)
    most = {n: getattr(limits, n, getattr(limits, f"duplicate_{n}", None)) for n in figures}
    broken = [name for name, value in figures.items() if value > most[name]]
    of_lines = [
        name for name in broken if name.endswith(("s", "characters")) and "gram" not in name
    ]
    tops = [name for name in broken if name.startswith("top")]
    return of_lines or tops or broken[:1]


def found(texts: list[str], limits: GopherRepetition = SETTINGS) -> list[list[str]]:
    verdict = judge(Table.of(documents_of(texts)), limits)
    return [
        [reason.removeprefix("gopher_repetition.") for reason, mask in verdict.items() if mask[i]]
        for i in range(len(texts))
    ]


@given(st.lists(st.one_of(TEXTS, LINED), max_size=5))
@settings(max_examples=200)
def test_reasons_are_those_of_the_definition(texts: list[str]) -> None:
    assert found(texts) == [plain(text) for text in texts]


def sources() -> list[str]:
    """Modules of the standard library: real text with all kinds of repetition."""
    folder = Path(json.__file__).parent.parent
    files = sorted(folder.glob("*.py"))[:40] + sorted((folder / "encodings").glob("*.py"))[:30]
    return [path.read_text(encoding="utf-8", errors="replace")[:12_000] for path in files]


def test_reasons_on_real_text() -> None:
    texts = sources()
    expected = [plain(text) for text in texts]
    assert found(texts) == expected
    assert 5 < sum(map(bool, expected)) < 60


@pytest.mark.parametrize("n", LEVELS)
def test_each_length_of_run_on_real_text(n: int) -> None:
    names = [f"duplicate_{level}_grams" for level in LEVELS]
    names += [name for name in (f.name for f in fields(SETTINGS)) if name not in names]
    limits = replace(SETTINGS, **dict.fromkeys(names, 1.0) | {f"duplicate_{n}_grams": 0.02})
    texts = sources()[::3]
    expected = []
    for text in texts:
        words, weights = pieces_of(text)
        share = repeated(words, weights, n) / max(len(text), 1)
        expected.append([f"duplicate_{n}_grams"] * (share > 0.02))
    assert found(texts, limits) == expected
    assert {bool(reasons) for reasons in expected} == {True, False}


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
        (NOVEL[:200] + " a b c d e f g h i j k l m n o p" * 5, "duplicate_5_grams"),
        (NOVEL, None),
        ("", None),
        ("ha", None),
    ],
)
def test_each_rule(text: str, reason: str | None) -> None:
    [reasons] = found([text])
    assert reason in reasons if reason else not reasons


def test_a_limit_of_zero_drops_any_repetition() -> None:
    strict = GopherRepetition(duplicate_10_grams=0)
    text = NOVEL + " " + " ".join(NOVEL.split()[:10])
    for shown, drops in ((text, True), (NOVEL, False), (" ".join(text.split()[:-1]), False)):
        verdict = judge(Table.of(documents_of([shown])), strict)
        assert bool(verdict["gopher_repetition.duplicate_10_grams"][0]) is drops
