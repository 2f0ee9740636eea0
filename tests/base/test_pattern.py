"""Expressions that are compiled when first used."""

from __future__ import annotations

import re

import pytest

from meshwright.base.pattern import pattern


def test_answers_like_the_compiled_expression() -> None:
    made, compiled = pattern(r"(?P<a>x+)", re.IGNORECASE), re.compile(r"(?P<a>x+)", re.IGNORECASE)
    assert made.search("..XX").group("a") == "XX"  # type: ignore[union-attr]
    assert made.sub("-", "axxbX") == compiled.sub("-", "axxbX")
    assert [m.span() for m in made.finditer("xax")] == [(0, 1), (2, 3)]
    assert (made.pattern, made.flags, made.groups) == (compiled.pattern, compiled.flags, 1)


def test_a_wrong_expression_fails_when_used() -> None:
    made = pattern("(")
    with pytest.raises(re.error):
        made.match("")


def test_an_expression_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        pattern("x").nothing  # type: ignore[attr-defined] # noqa: B018
