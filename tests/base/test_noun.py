"""`base.noun.dataclass` makes what `dataclasses.dataclass` makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from meshwright.base.noun import dataclass
from meshwright.plan.job import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """A noun with every kind of field."""

    name: str
    sizes: tuple[int, ...] = ()
    words: dict[str, int] = field(default_factory=dict, hash=False, compare=False)
    hidden: int = field(default=1, repr=False, compare=False)

    def twice(self) -> int:
        """So that methods are kept."""
        return 2 * self.hidden


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """The same, made by the standard decorator."""

    name: str
    sizes: tuple[int, ...] = ()
    words: dict[str, int] = field(default_factory=dict, hash=False, compare=False)
    hidden: int = field(default=1, repr=False, compare=False)

    def twice(self) -> int:
        """So that methods are kept."""
        return 2 * self.hidden


@dataclass(frozen=True, slots=True)
class Place:
    """A noun whose fields have places."""

    line: int
    column: int = 1


@dataclass(frozen=True, slots=True)
class Deeper(Place):
    """One that inherits."""

    file: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """No fields at all."""


def test_fields_and_signature_are_the_standard_ones() -> None:
    def told(noun: Any) -> list[tuple[Any, ...]]:
        return [
            (f.name, f.type, f.default, f.default_factory, f.kw_only, f.repr, f.compare)
            for f in dataclasses.fields(noun)
        ]

    assert told(Quick) == told(Standard)
    quick, standard = (inspect.signature(n).parameters for n in (Quick, Standard))
    assert [(p.name, p.kind) for p in quick.values()] == [
        (p.name, p.kind) for p in standard.values()
    ]
    assert quick["sizes"].default == standard["sizes"].default
    assert (Quick.__doc__, Quick.__slots__) == (
        "A noun with every kind of field.",
        Standard.__slots__,
    )  # type: ignore[attr-defined]


def test_values_print_compare_and_hash_as_the_standard_ones() -> None:
    quick, standard = Quick(name="a", sizes=(1, 2)), Standard(name="a", sizes=(1, 2))
    assert repr(quick) == repr(standard).replace("Standard", "Quick")
    assert quick == Quick(name="a", sizes=(1, 2), hidden=7, words={"x": 1})
    assert quick != Quick(name="b", sizes=(1, 2))
    assert quick != standard
    assert len({quick, Quick(name="a", sizes=(1, 2)), Quick(name="a")}) == 2
    assert dataclasses.asdict(quick) == dataclasses.asdict(standard)
    assert quick.twice() == 2
    assert quick.words == {}
    assert quick.words is not Quick(name="a").words


@pytest.mark.parametrize("wrong", [{}, {"name": "a", "other": 1}])
def test_arguments_are_checked(wrong: dict[str, Any]) -> None:
    for noun in (Quick, Standard):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            noun(**wrong)


def test_nothing_can_be_assigned_or_deleted() -> None:
    noun = Place(3)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'line'"):
        noun.line = 4  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'line'"):
        del noun.line
    with pytest.raises(FrozenInstanceError):
        noun.other = 4  # type: ignore[attr-defined]
    assert not hasattr(noun, "__dict__")


@pytest.mark.parametrize(
    "noun", [Quick(name="a", words={"x": 2}), Place(3), Deeper(1, 2, "f"), Empty()]
)
def test_copies_are_equal(noun: Any) -> None:
    assert copy.copy(noun) == noun
    assert copy.deepcopy(noun) == noun
    assert pickle.loads(pickle.dumps(noun)) == noun
    assert dataclasses.replace(noun) == noun
    assert hash(noun) == hash(copy.copy(noun))


def test_places_and_inheritance() -> None:
    assert Place(3) == Place(line=3, column=1)
    assert Place.__match_args__ == ("line", "column")
    assert repr(Deeper(1, 2, "f")) == "Deeper(line=1, column=2, file='f')"
    assert Place(1) != Deeper(1)
    assert repr(Empty()) == "Empty()"


def test_other_options_are_left_to_the_standard_decorator() -> None:
    @dataclass(slots=True)
    class Loose:
        size: int = 1

    loose = Loose()
    loose.size = 2
    assert loose == Loose(2)
    assert dataclasses.is_dataclass(Workload)
