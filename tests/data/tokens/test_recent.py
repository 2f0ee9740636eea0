"""Characters newer than a library's Unicode: found wherever they stand, left to the reference."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.data.settings import TokenizerSource
from meshwright.data.tokens.fast import Guarded
from meshwright.data.tokens.recent import probes, ranges, unsettled
from meshwright.data.tokens.tokenizer import load
from meshwright.data.tokens.trial import first_difference

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NONE = np.zeros(0, dtype=np.uint32)
DEEPSEEK = (  # pre_tokenizer of DeepSeek V3's tokenizer.json
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def is_recent(character: str) -> bool:
    code = ord(character)
    unassigned = unicodedata.category(character) == "Cn" and code < 0x40000
    tags = 0xE0000 <= code < 0xE1000
    return unassigned or tags or any(code in span for span in ranges())


@given(st.text(max_size=60))
def test_a_text_is_unsettled_if_some_character_is(text: str) -> None:
    assert unsettled(text.encode(), NONE) == any(map(is_recent, text))


@given(
    st.sampled_from(list(ranges())),
    st.text(alphabet=st.characters(codec="ascii"), max_size=9),
)
def test_recent_characters_are_found_at_either_end(span: range, text: str) -> None:
    for code in (span[0], span[-1]):
        for made in (chr(code) + text, text + chr(code), f"{text}\u20ac{chr(code)}"):
            assert unsettled(made.encode(), NONE)


def test_old_text_is_settled() -> None:
    for text in ("", "plain", "na\u00efve \u20ac \u4e2d\u6587 \U0001f600 \ufb01 \u2065"[:-1]):
        assert not unsettled(text.encode(), NONE)


def test_the_probes_hold_both_ends_of_short_ranges() -> None:
    joined = set("".join(probes()))
    short = [span for span in ranges() if len(span) < 24]
    assert len(short) > 80
    assert all(chr(code) in joined for span in short for code in span)


def test_deepseeks_expression_is_guarded_where_tables_differ(
    byte_level: dict[str, Any], written: Callable[..., Path]
) -> None:
    splits = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in DEEPSEEK
    ]
    last = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    parts = {"type": "Sequence", "pretokenizers": [*splits, {**last, "use_regex": False}]}
    tokenizer = load(TokenizerSource(file=str(written(byte_level, pre_tokenizer=parts))))
    assert tokenizer.engine == "gigatoken"
    assert isinstance(tokenizer.encoder, Guarded)
    texts = [f"a {chr(code)}b {chr(code)}1\n" for span in ranges() for code in span[:64]]
    assert first_difference(tokenizer.encoder, tokenizer.vocabulary.reference, texts=texts) is None
