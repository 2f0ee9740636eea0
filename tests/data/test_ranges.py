"""Every key of the settings has a range, a few choices, or is free text."""

from __future__ import annotations

from dataclasses import fields, replace
from types import UnionType
from typing import Any, get_args, get_origin

import pytest

from meshwright.base.decode import type_hints
from meshwright.base.errors import InvalidInput
from meshwright.data.ranges import CHOICES, RANGES, allowed, check_build, problems_of
from meshwright.data.settings import (
    C4,
    Build,
    Decontaminate,
    FineWeb,
    GopherQuality,
    GopherRepetition,
    Language,
    Output,
    Pii,
    Source,
    TokenizerSource,
)

FULL = Build(
    sources=(Source(files=("a.jsonl",), weight=1.0),),
    output=Output(folder="shards"),
    tokenizer=TokenizerSource(file="t.json"),
    language=Language(keep=("en",)),
    gopher_quality=GopherQuality(),
    gopher_repetition=GopherRepetition(),
    c4=C4(),
    fineweb=FineWeb(),
    pii=Pii(),
    decontaminate=Decontaminate(files=("eval.jsonl",)),
)
FREE = {  # text that nothing but use can judge, files and names of fields
    "source.files",
    "source.name",
    "source.text_field",
    "source.id_field",
    "language.keep",
    "tokenizer.file",
    "tokenizer.pattern",
    "tokenizer.eod",
    "decontaminate.files",
    "decontaminate.fields",
    "output.folder",
}
OWN = {"validation": (0, 1), "source.weight": (0, 1e9)}  # one of whose ends is left out


def keys() -> dict[str, Any]:
    """Every key of config.toml with its type."""
    found: dict[str, Any] = {}
    for name, hint in type_hints(Build).items():
        noun = plain(hint)
        if name == "sources":
            found |= {f"source.{key}": plain(kind) for key, kind in type_hints(Source).items()}
        elif hasattr(noun, "__dataclass_fields__"):
            found |= {f"{name}.{key}": plain(kind) for key, kind in type_hints(noun).items()}
        else:
            found[name] = noun
    return found


def plain(hint: Any) -> Any:
    return get_args(hint)[0] if isinstance(hint, UnionType) else get_origin(hint) or hint


def having(key: str, value: Any) -> Build:
    table, _, name = key.rpartition(".")
    if table == "source":
        return replace(FULL, sources=(replace(FULL.sources[0], **{name: value}),))
    if table:
        return replace(FULL, **{table: replace(getattr(FULL, table), **{name: value})})
    return replace(FULL, **{name: value})


def complaints(key: str, value: Any) -> list[str]:
    """The problems that a value of one key makes under that key."""
    spelled = key.replace("source.", "source.0.")
    found = problems_of(having(key, value))
    return [p.reason for p in found if p.key == spelled or p.key.startswith(f"{spelled}.")]


def kinds(*wanted: type) -> list[str]:
    return [key for key, kind in keys().items() if kind in wanted]


def test_the_full_build_has_every_table_and_no_problem() -> None:
    assert [field.name for field in fields(Build) if getattr(FULL, field.name) is None] == []
    assert problems_of(FULL) == []


@pytest.mark.parametrize("key", kinds(int, float))
def test_every_number_is_held_to_a_range(key: str) -> None:
    least, most = OWN.get(key) or RANGES[key]
    step = 1 if keys()[key] is int else max(1e-6, abs(most) * 1e-6)
    assert complaints(key, least - step)
    assert complaints(key, most + step)
    assert allowed(key)


@pytest.mark.parametrize("key", sorted(RANGES))
def test_the_ends_of_a_range_are_allowed(key: str) -> None:
    said = [reason for value in RANGES[key] for reason in complaints(key, value)]
    assert [reason for reason in said if reason.startswith(("is below", "is above"))] == []


@pytest.mark.parametrize("key", kinds(str, tuple))
def test_every_text_is_one_of_its_choices_or_free(key: str) -> None:
    assert (key in CHOICES) != (key in FREE)
    nonsense: Any = ("no such",) if keys()[key] is tuple else "no such"
    if key in CHOICES:
        assert complaints(key, nonsense) == ["is none of the choices"]
        assert all(complaints(key, (c,) if keys()[key] is tuple else c) == [] for c in CHOICES[key])
    elif key != "language.keep":
        assert complaints(key, nonsense) == []


def test_no_limit_is_about_a_key_that_is_not() -> None:
    assert (RANGES.keys() | CHOICES.keys() | FREE) <= keys().keys()
    assert {key for key, kind in keys().items() if kind is not bool} == (
        RANGES.keys() | CHOICES.keys() | FREE | OWN.keys()
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("limits.document_bytes", "1 to 2^31 - 1"),
        ("output.shard_tokens", "1 to 2^40"),
        ("limits.expansion", "1 to 1e9"),
        ("dedup.threshold", "0.01 to 1"),
        ("pack.layout", "auto, documents, rows"),
        ("clean.newlines", ""),
    ],
)
def test_what_is_allowed_in_words(key: str, words: str) -> None:
    assert allowed(key) == words


@pytest.mark.parametrize("value", [2**63, -1, float("inf"), float("nan"), 1e308])
@pytest.mark.parametrize("key", ["dedup.threshold", "dedup.bands", "dedup.rows"])
def test_a_value_out_of_range_is_told_before_it_is_combined(key: str, value: float) -> None:
    build = replace(FULL, dedup=replace(FULL.dedup, near=True))
    table, _, name = key.partition(".")
    build = replace(build, **{table: replace(getattr(build, table), **{name: value})})
    assert [problem.key for problem in problems_of(build)] == [key]


@pytest.mark.parametrize(
    "key", ["source.files", "tokenizer.file", "decontaminate.files", "output.folder"]
)
@pytest.mark.parametrize(("path", "said"), [("a\0b", "NUL"), ("a\udcff", "Unicode")])
def test_paths_that_no_system_takes(key: str, path: str, said: str) -> None:
    (complaint,) = complaints(key, (path,) if keys()[key] is tuple else path)
    assert said in complaint


def test_the_output_is_no_url() -> None:
    assert complaints("output.folder", "s3://bucket/shards") == ["is a URL"]
    with pytest.raises(InvalidInput, match="is a URL"):
        check_build(having("output.folder", "s3://bucket/shards"))
