"""docs/reference/data.md: settings of a data build, reasons, and what lies in its output folder."""

from __future__ import annotations

from dataclasses import MISSING, fields
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args

from comments import comments_of
from meshwright.base.decode import type_hints
from meshwright.cli.data.options import flags
from meshwright.data import mix, reasons, settings
from meshwright.data.ranges import allowed
from meshwright.data.reading import QUANTITIES
from meshwright.data.settings import Build, Source
from meshwright.data.shards import manifest, names, tables
from meshwright.data.source.rejects import REJECTS
from meshwright.data.stages import layout
from page_parts import codes, joined, table, title

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from dataclasses import Field
    from types import ModuleType

_TYPES = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true, false",
    "tuple": "list of text",
}
_UNITS = {
    "parse_bytes": 'size, as "64MiB"',
    "parse_length": 'length, as "4k" = 4,096',
    "parse_tokens": 'count, as "256M"',
}
_RECORDS = (  # of manifest.json, with the key below which each stands
    ("Vocabulary", "vocabulary"),
    ("Packed", "packed"),
    ("InputRecord", "inputs[]"),
    ("SourceRecord", "sources[]"),
    ("Example", "examples.REASON[]"),
    ("Cluster", "clusters[]"),
    ("StrategyRecord", "strategies.NAME"),
    ("ShardRecord", "shards[]"),
    ("File", "files.NAME"),
)


def data_page() -> str:
    """The whole page."""
    return joined([title("Data"), _HEAD, *_settings(), *_reasons(), *_folder(), *_blend()])


_HEAD = """\
What `meshwright data build` is told, and what it leaves behind.
[The guide](../guides/prepare-data.md) shows the way, [the concepts](../concepts/data.md) say how
each step works.

- [Settings](#settings): every key of a config.toml
- [Reasons](#reasons) for which documents are dropped or set aside
- [The output folder](#the-output-folder) and its files
- [blend.toml](#blendtoml)"""

_SETTINGS = """
## Settings

`meshwright data build config.toml` reads them, `--write-config config.toml` writes those that flags
describe; a flag wins over the file. Paths are relative to the file. The step of an optional table
is taken if the table is there, be it empty; `--filters gopher` asks for both of Gopher's. Sizes
and counts may have units."""


def _settings() -> Iterator[str]:
    yield _SETTINGS
    comments = comments_of(settings, "Build")
    plain = [field for field in fields(Build) if not _record(field)]
    yield from ["", "### At the top", ""]
    yield from _keys("", plain, comments)
    yield from ["", "### [input], or several [[source]]", ""]
    yield from [
        _said(Source),
        "",
        *_keys("source", fields(Source), comments_of(settings, "Source")),
    ]
    for field in fields(Build):
        noun = _record(field)
        if noun is not None and noun is not Source:
            yield from ["", f"### [{field.name}]", "", _said(noun) + _asked(field)]
            yield from [*_sentence(comments[field.name]), ""]
            yield from _keys(field.name, fields(noun), comments_of(settings, noun.__name__))


def _record(field: Field[Any]) -> type | None:
    """The dataclass of a table, None for a plain value."""
    hint = type_hints(Build)[field.name]
    inner = get_args(hint)[0] if get_args(hint) else hint
    return inner if hasattr(inner, "__dataclass_fields__") else None


def _said(noun: type) -> str:
    return " ".join((noun.__doc__ or "").split()).replace(
        "`words.table`", "[the concepts](../concepts/data.md#words)"
    )


def _asked(field: Field[Any]) -> str:
    """How a step is asked for, if it is not always taken."""
    if field.default is MISSING:
        return ""
    flag = flags().get(field.name)
    optional = " Optional" if field.default is None else ""
    return f"{optional}; asked for by `{flag}`." if flag else f"{optional}." if optional else ""


def _sentence(words: str) -> list[str]:
    return [f"{words[0].upper()}{words[1:]}."] if words else []


def _keys(
    name: str, items: tuple[Field[Any], ...] | list[Field[Any]], comments: Mapping[str, str]
) -> list[str]:
    """The keys of one table."""
    hints = type_hints(Source if name == "source" else _noun(name))
    rows = []
    for field in items:
        key = f"{name}.{field.name}".lstrip(".")
        flag = flags().get(key.replace("source.", "input."), "")
        rows.append(
            [
                f"`{field.name}`",
                _type(name, field.name, hints[field.name]),
                _default(field.default, _type(name, field.name, hints[field.name])),
                allowed(key),
                f"`{flag}`" if flag else "",
                comments[field.name],
            ]
        )
    return table(("key", "type", "default", "allowed", "flag", "meaning"), rows)


def _noun(name: str) -> type:
    """The dataclass of the table of that name; that of all tables for ""."""
    found = {field.name: _record(field) for field in fields(Build)}.get(name)
    return found or Build


def _type(name: str, field: str, hint: Any) -> str:
    if (name, field) in QUANTITIES:
        return _UNITS[QUANTITIES[name, field].__name__]
    inner = get_args(hint)[0] if isinstance(hint, UnionType) else hint
    return _TYPES[getattr(inner, "__name__", "tuple")]


def _default(value: Any, kind: str) -> str:
    """A default as it would be written; nothing where there is none."""
    if value is MISSING:
        return "required"
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(_bare(item) for item in value)}]`"
    if kind in _UNITS.values() and value >= 1_000_000:
        size, unit = (1 << 20, "MiB") if kind == _UNITS["parse_bytes"] else (1_000_000, "M")
        return f'`"{value // size}{unit}"`'
    return f"`{_bare(value)}`"


def _bare(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value}"


_REASONS = """
## Reasons

A document has one reason, that of the first step or rule that drops it, in this order.
`meshwright explain REASON` says which keys decide it."""


def _reasons() -> Iterator[str]:
    yield from [_REASONS, ""]
    rows = [
        [f"`{reason}`", said, codes(reasons.KEYS[reason])]
        for reason, said in reasons.REASONS.items()
        if reason
    ]
    yield from table(("reason", "meaning", "decided by"), rows)
    yield from [
        "",
        "What cannot be read is no document; it is put aside into `rejected.jsonl`:",
        "",
    ]
    yield from table(("reason", "meaning"), [[f"`{r}`", said] for r, said in REJECTS.items()])


def _folder() -> Iterator[str]:
    yield from ["", "## The output folder", ""]
    yield from table(("file", "holds"), [[f"`{n}`", said] for n, said in names.CONTENTS.items()])
    yield from [
        "",
        "### documents.parquet",
        "",
        "A row for each document read, in their order.",
        "",
    ]
    yield from _columns(tables, "COLUMNS", tables.COLUMNS)
    yield from ["", "### text-00000.parquet", "", "A row for each document kept.", ""]
    yield from _columns(tables, "TEXT_COLUMNS", tables.TEXT_COLUMNS)
    yield from ["", "### train-00000.rows.npy", "", "A record for each row of training.", ""]
    yield from _columns(layout, "ROW", _fields(layout.ROW))
    yield from ["", "### train-00000.pieces.npy", "", "A record for each piece, row by row.", ""]
    yield from _columns(layout, "PIECE", _fields(layout.PIECE))
    yield from ["", "### manifest.json", "", "JSON; every key is always there.", ""]
    yield from _record_table(manifest, "Manifest", below="")
    yield ""
    rows = [row for name, key in _RECORDS for row in _record_rows(manifest, name, below=key)]
    yield from table(("below that", "type", "meaning"), rows)


def _fields(dtype: Any) -> dict[str, str]:
    return {name: f"`{dtype[name].str}`" for name in dtype.names}


def _columns(module: ModuleType, name: str, columns: Mapping[str, str]) -> list[str]:
    said = comments_of(module, name)
    return table(
        ("column", "type", "meaning"), [[f"`{c}`", kind, said[c]] for c, kind in columns.items()]
    )


def _record_table(module: ModuleType, name: str, *, below: str) -> list[str]:
    return table(("key", "type", "meaning"), _record_rows(module, name, below=below))


def _record_rows(module: ModuleType, name: str, *, below: str) -> list[list[str]]:
    said = comments_of(module, name)
    return [
        [f"`{below}.{field.name}`".replace("`.", "`"), _json(field.type), said[field.name]]
        for field in fields(getattr(module, name))
    ]


def _json(hint: Any) -> str:
    """The type of a field as JSON or TOML has it."""
    kind = str(hint).removesuffix(" | None")
    if kind in _TYPES:
        return _TYPES[kind]
    return "list" if kind.startswith(("list", "tuple")) else "table"


_BLEND = """
## blend.toml

`meshwright data mix` writes it, loaders read it. Its folders are found relative to the file.
"""


def _blend() -> Iterator[str]:
    yield _BLEND
    yield from _record_table(mix, "Blend", below="")
    yield ""
    yield from _record_table(mix, "BlendSource", below="sources[]")
