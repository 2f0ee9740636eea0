"""The rules of FineWeb against their definition in plain Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.filters.fineweb import judge, measures
from meshwright.data.settings import FineWeb
from meshwright.data.words.table import Table

LINES = [
    *("", " ", "A short line.", "A short line", "end? ", "你好世界。", "x" * 30, "é" * 31),
    *("a line of more than thirty characters, it is!", "a line of more than thirty characters"),
]
TEXTS = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join)


def plain(text: str) -> dict[str, float]:
    lines = [line for line in text.split("\n") if line.strip()]
    table = Table.of(documents_of([text]))
    repeated = [line for place, line in enumerate(lines) if line in lines[:place]]
    figures = {
        "punctuated_lines": sum(line.rstrip()[-1] in ".?!。" for line in lines)
        / max(len(lines), 1),
        "short_lines": sum(len(line) <= 30 for line in lines) / max(len(lines), 1),
        "duplicate_lines": sum(map(len, repeated)) / max(len(text.replace("\n", "")), 1),
        "newlines": text.count("\n") / max(len(table.word_hash), 1),
    }
    return {f"fineweb.{name}": value for name, value in figures.items()}


@given(st.lists(TEXTS, max_size=6))
def test_figures_are_those_of_the_definition(texts: list[str]) -> None:
    found = measures(Table.of(documents_of(texts)), FineWeb())
    for index, text in enumerate(texts):
        assert {m.reason: m.values[index] for m in found} == pytest.approx(plain(text))


LONG = "This is a line of more than thirty characters that ends well."


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        ([LONG, LONG.replace("line", "row"), "short"], []),
        ([LONG[:-1] + f" {n}" for n in range(10)], ["punctuated_lines"]),
        ([LONG, *(f"line {n} and more words." for n in range(4))], ["short_lines"]),
        ([LONG, LONG], ["duplicate_lines"]),
        ([*"abcdefghij", LONG, LONG + "."], ["short_lines", "newlines"]),
        ([], ["punctuated_lines"]),
    ],
)
def test_each_rule(lines: list[str], reasons: list[str]) -> None:
    verdict = judge(Table.of(documents_of(["\n".join(lines)])), FineWeb())
    assert [reason for reason, mask in verdict.items() if mask[0]] == [
        f"fineweb.{name}" for name in reasons
    ]
