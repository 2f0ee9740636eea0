"""Decoding: typed values from files, every mistake at once; and encoding back."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from meshwright.base.decode import REFUSED, Decoder
from meshwright.base.encode import plain, to_toml
from meshwright.base.locate import parse


class Color(IntEnum):
    DEEP_RED = 0
    BLUE = 1


@dataclass(frozen=True, kw_only=True)
class Square:
    side: float


@dataclass(frozen=True, kw_only=True)
class Circle:
    radius: float
    color: Color = Color.BLUE


@dataclass(frozen=True, kw_only=True)
class Scene:
    name: str
    shapes: tuple[Square | Circle, ...] = ()
    layers: int | NDArray[np.int64] = 1
    visible: bool = True
    depth: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    tags: tuple[tuple[str, int], ...] = ()
    order: tuple[int, ...] | None = None


def read(text):
    decoder = Decoder(parse(text, syntax="toml", file="scene.toml"))
    return decoder.record(Scene, ()), decoder.findings


def test_reads_every_kind_of_value():
    scene, findings = read(
        'name = "a"\nlayers = 3\nvisible = false\ndepth = 2\norder = [2, 1]\n'
        "weights = { x = 1 }\ntags = { t = 4 }\n"
        '[[shapes]]\nside = 1.5\n[[shapes]]\nradius = 2.0\ncolor = "deep-red"\n'
    )
    assert findings == []
    assert scene == Scene(
        name="a",
        shapes=(Square(side=1.5), Circle(radius=2.0, color=Color.DEEP_RED)),
        layers=3,
        visible=False,
        depth=2.0,
        weights={"x": 1.0},
        tags=(("t", 4),),
        order=(2, 1),
    )


def test_reports_every_mistake_with_its_place():
    scene, findings = read(
        'layers = "three"\nvisibel = true\ndepth = nan\n'
        'order = 5\n[[shapes]]\nradius = true\ncolor = "bleu"\n'
    )
    assert scene is REFUSED
    found = {f.key: (f.line, f.reason, f.hint) for f in findings}
    assert found["layers"] == (1, "is not a whole number", "write it as 8")
    assert found["visibel"] == (2, "is no key of this table", "did you mean visible?")
    assert found["depth"][:2] == (3, "is not a finite number")
    assert found["order"][0] == 4
    assert found["shapes.0.radius"][:2] == (6, "is not a number")
    assert found["shapes.0.color"] == (7, "is none of the choices", "did you mean blue?")
    assert found["name"][1] == "is missing"
    assert len(found) == len(findings) == 7


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4096.0", "write it as 4096"),
        ("256e6", "write it as 256000000"),
        ('"50"', "write it as 50"),
        ('" -7 "', "write it as -7"),
        ("4096.5", "write it as 8"),
        ("1e300", "write it as 8"),
        ("inf", "write it as 8"),
        ("nan", "write it as 8"),
        ('"5_0"', "write it as 8"),
        ("true", "write it as 8"),
    ],
)
def test_the_whole_number_that_was_meant_is_suggested(text: str, hint: str) -> None:
    _, findings = read(f'name = "a"\nshapes = []\nlayers = {text}\n')
    assert [f.hint for f in findings] == [hint]


def test_a_number_is_no_truth_value_and_a_huge_one_is_refused():
    _, findings = read('name = "a"\nvisible = 1\nlayers = 99999999999999999999\n')
    assert [f.reason for f in findings] == ["is too large", "is not true or false"]


def test_a_scalar_where_a_table_should_be():
    _, findings = read('name = "a"\nweights = 3\n')
    assert [f.reason for f in findings] == ["is not a table"]


names = st.text(min_size=1, max_size=6)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
shapes = st.builds(Square, side=numbers) | st.builds(
    Circle, radius=numbers, color=st.sampled_from(Color)
)
scenes = st.builds(
    Scene,
    name=texts,
    shapes=st.lists(shapes, max_size=3).map(tuple),
    layers=st.integers(-(2**62), 2**62),
    visible=st.booleans(),
    depth=st.none() | numbers,
    weights=st.dictionaries(texts, numbers, max_size=3),
    tags=st.dictionaries(texts, st.integers(0, 99), max_size=3).map(lambda d: tuple(d.items())),
    order=st.none() | st.lists(st.integers(0, 9), max_size=4).map(tuple),
)


@given(scenes)
def test_what_is_written_reads_back_exactly(scene):
    text = to_toml(plain(scene))
    tomllib.loads(text)
    again, findings = read(text)
    assert findings == []
    assert again == scene


def test_defaults_are_left_out():
    assert to_toml(plain(Scene(name="a", layers=2))) == 'name = "a"\nlayers = 2\n'
