"""A layout without some lines is the layout of the text that is left."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.documents import documents_of
from meshwright.data.words.layout import Layout, layout_of, with_lines

LINES = st.sampled_from(
    ["", " ", "a", "  B c ", "é É", "\xa0", "\u3000x\u3000", "你好 K", " " * 70]
)
TEXTS = st.lists(st.lists(LINES, max_size=6).map("\n".join), max_size=5)
COLUMNS = ("start", "stop", "first_byte", "last_byte", "bounds", "first", "last", "chunk")


def assert_same(one: Layout, other: Layout) -> None:
    assert one.documents.strings() == other.documents.strings()
    assert one.text.encoded == other.text.encoded
    for name in ("bounds", "foreign", "folded"):
        assert getattr(one.text, name).tolist() == getattr(other.text, name).tolist(), name
    assert one.chunks.tolist() == other.chunks.tolist()
    for name in COLUMNS:
        assert getattr(one.lines, name).tolist() == getattr(other.lines, name).tolist(), name


@given(TEXTS, st.data())
def test_what_is_left_is_laid_out_as_if_read_anew(texts: list[str], data: st.DataObject) -> None:
    layout = layout_of(documents_of(texts))
    count = len(layout.lines.start)
    wanted = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    left = with_lines(layout, np.array(wanted, dtype=np.bool_))
    assert_same(left, layout_of(left.documents))
    lines = [[line for line in text.split("\n") if line.strip()] for text in texts]
    choice = iter(wanted)
    assert left.documents.strings() == [
        "\n".join([line for line in mine if next(choice)]) for mine in lines
    ]


def test_chunks_stand_between_white_space_and_end_with_their_document() -> None:
    layout = layout_of(documents_of(["ab c\n d", "e"]))
    assert layout.chunks.tolist() == [0, 3, 6, 7]
    assert layout.chunk_counts.tolist() == [2, 1, 1]
