"""Lines and paragraphs against Python's own splitting."""

import re

from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.words.table import Table

LINES = st.sampled_from(
    [
        "",
        " ",
        "\t",
        "a",
        "  b ",
        "é",
        "\xa0",
        "\u3000x\u3000",
        "你好",
        "a b\x0b",
        " " * 80 + "z" + " " * 90,
    ]
)
TEXTS = st.lists(st.lists(LINES, max_size=9).map("\n".join), max_size=6)


def lines_of(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def paragraphs_of(text: str) -> list[str]:
    blank = re.compile(r"(?:^|\n)(?:\s*\n)+")
    kept, found = [], []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            kept.append(line)
        elif kept:
            found.append("\n".join(kept))
            kept = []
    assert not any(blank.search(paragraph) for paragraph in found)
    return found


def repeats(parts: list[str]) -> list[bool]:
    return [part in parts[:place] for place, part in enumerate(parts)]


@given(TEXTS)
def test_lines_and_paragraphs_are_those_of_the_definition(texts: list[str]) -> None:
    table = Table.of(documents_of(texts))
    for index, text in enumerate(texts):
        for stretches, parts in (
            (table.lines, lines_of(text)),
            (table.lines.paragraphs, paragraphs_of(text)),
        ):
            mine = slice(stretches.bounds[index], stretches.bounds[index + 1])
            at = zip(
                stretches.start[mine] - table.bounds[index], stretches.lengths[mine], strict=True
            )
            assert [text[a : a + n] for a, n in at] == parts
            raw = zip(stretches.first_byte[mine], stretches.last_byte[mine], strict=True)
            assert [table.documents.text[a:b].tobytes().decode() for a, b in raw] == parts
            assert stretches.repeats[mine].tolist() == repeats(parts)


@given(TEXTS)
def test_first_and_last_are_the_ends_of_the_stripped_line(texts: list[str]) -> None:
    table = Table.of(documents_of(texts))
    for index, text in enumerate(texts):
        mine = slice(table.lines.bounds[index], table.lines.bounds[index + 1])
        first, last = table.lines.first[mine], table.lines.last[mine]
        at = zip(first - table.bounds[index], last + 1 - table.bounds[index], strict=True)
        assert [text[a:b] for a, b in at] == [line.strip() for line in lines_of(text)]
