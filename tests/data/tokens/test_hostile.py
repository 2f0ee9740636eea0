"""The hostile texts are many-sided and the same everywhere."""

from __future__ import annotations

import unicodedata

from meshwright.data.tokens.hostile import FIXED, samples


def test_they_depend_on_the_seed_alone() -> None:
    assert samples(500, seed=1) == samples(500, seed=1)
    assert samples(500, seed=1) != samples(500, seed=2)
    assert len(samples(10)) == 10
    assert len(samples(500, tokens=("<a>",) * 900)) == 500


def test_all_are_text_that_utf8_can_hold() -> None:
    for text in samples(3000, seed=5):
        assert text.encode().decode() == text


def test_they_reach_every_plane_and_kind_of_character() -> None:
    characters = {character for text in samples(10_000, seed=9) for character in text}
    assert {ord(character) >> 16 for character in characters} == set(range(17))
    kinds = {unicodedata.category(character) for character in characters}
    assert kinds >= {
        *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps"),
        *("Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"),
    }
    assert {"\u200d", "\u202e", "\x00", "\ufeff", "\r"} <= characters


def test_each_token_stands_in_some_text() -> None:
    tokens = [f"<|{number}|>" for number in range(200)]
    joined = "\n".join(samples(600, tokens=tokens))
    assert all(token in joined for token in tokens)
    assert FIXED[0] == ""
