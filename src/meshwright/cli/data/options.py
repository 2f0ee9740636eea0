"""The options of `data build` that are settings, and the settings that they make."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.base.names import did_you_mean
from meshwright.cli.length import optional_length
from meshwright.data.settings import Build, Limits, Output, Pack, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.data.reading import Override

FILTERS = {  # what --filters may name, with the tables that it stands for
    "gopher": ("gopher_quality", "gopher_repetition"),
    "gopher-quality": ("gopher_quality",),
    "gopher-repetition": ("gopher_repetition",),
    "c4": ("c4",),
    "fineweb": ("fineweb",),
}
_ENDINGS = (".toml", ".yaml", ".yml")


_OWNERS = {"": Build, "input": Source, "output": Output, "pack": Pack, "limits": Limits}


def _setting(flag: str, key: str, *, help: str, **more: Any) -> Any:
    """An option that tells the default of its setting: "[default: 256M]"."""
    table, _, name = key.rpartition(".")
    value = next(field.default for field in fields(_OWNERS[table]) if field.name == name)
    return click.option(flag, help=f"{help}  [default: {_words(value)}]", **more)


def _words(value: Any) -> str:
    """A default as one would type it: 256M, 4096, 0.01, auto."""
    if isinstance(value, int) and value >= 10**6:
        return f"{value // 10**6}M"
    return f"{value:g}" if isinstance(value, float) else str(value)


OPTIONS = (
    click.option("--output", "-o", metavar="FOLDER", help="Where the shards go."),
    click.option(
        "--tokenizer",
        metavar="FILE",
        help="tokenizer.json, its folder, .tiktoken, ...  [default: none, cleaned text only]",
    ),
    click.option(
        "--eod",
        metavar="TOKEN",
        help="Token behind each document.  [default: the vocabulary's own]",
    ),
    _setting(
        "--seq-len",
        "pack.seq_len",
        metavar="TOKENS",
        callback=optional_length,
        help="Of a row: 8k.",
    ),
    _setting("--pack", "pack.strategy", metavar="HOW", help="concatenate, best-fit, padded."),
    _setting("--layout", "pack.layout", metavar="HOW", help="What .bin holds: documents, rows."),
    _setting(
        "--shard-tokens", "output.shard_tokens", metavar="TOKENS", help="Of a shard, as 256M."
    ),
    _setting(
        "--format", "input.format", metavar="FORMAT", help="jsonl, parquet, text, or by ending."
    ),
    _setting(
        "--text-field", "input.text_field", metavar="PATH", help="Field or column of the text."
    ),
    click.option(
        "--id-field", metavar="PATH", help="Field of the document's name.  [default: none]"
    ),
    _setting(
        "--documents",
        "input.documents",
        metavar="HOW",
        help="In text files: one per file, line, paragraph.",
    ),
    click.option("--filters", metavar="NAMES", help=f"Any of {', '.join(FILTERS)}."),
    click.option("--language", metavar="CODES", help="Languages to keep, as en,de."),
    click.option("--pii", is_flag=True, help="Mask e-mail and IP addresses."),
    click.option("--near-dedup", is_flag=True, help="Drop near duplicates (MinHash, verified)."),
    click.option("--no-exact-dedup", is_flag=True, help="Keep exact duplicates."),
    click.option("--decontaminate", multiple=True, metavar="FILE", help="Test sets to keep out."),
    _setting("--validation", "validation", type=float, metavar="SHARE", help="Held out, as 0.001."),
    _setting("--seed", "seed", type=int, help="Of the shuffle and the split."),
    _setting(
        "--bad-fraction",
        "limits.bad_fraction",
        type=float,
        metavar="SHARE",
        help="Of a file, at most bad.",
    ),
    click.option("--save-text", is_flag=True, help="Also write the cleaned text as parquet."),
    click.option("--keep-work", is_flag=True, help="Keep the intermediate files."),
)
_PLAIN = {  # options whose value goes to one key as it is
    "output": "output.folder",
    "tokenizer": "tokenizer.file",
    "eod": "tokenizer.eod",
    "seq_len": "pack.seq_len",
    "pack": "pack.strategy",
    "layout": "pack.layout",
    "shard_tokens": "output.shard_tokens",
    "format": "input.format",
    "text_field": "input.text_field",
    "id_field": "input.id_field",
    "documents": "input.documents",
    "validation": "validation",
    "seed": "seed",
    "bad_fraction": "limits.bad_fraction",
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    "near_dedup": ("dedup.near", True),
    "no_exact_dedup": ("dedup.exact", False),
    "save_text": ("output.text", True),
    "keep_work": ("output.keep_work", True),
}


def flags() -> dict[str, str]:
    """The flag that sets a key, or asks for a table, by that key or table."""
    return {
        "input.files": "FILES",
        **{key: _flag(option) for option, key in _PLAIN.items()},
        **{key: _flag(option) for option, (key, _) in _SWITCHES.items()},
        **{table: f"--filters {name}" for name, (table, *more) in FILTERS.items() if not more},
        "language.keep": "--language",
        "decontaminate.files": "--decontaminate",
        "pii": "--pii",
    }


def settings_of(files: Sequence[str], asked: dict[str, Any]) -> Build:
    """The settings that the arguments and options describe; InvalidInput when they are wrong."""
    from meshwright.base.locate import Document
    from meshwright.data.reading import build_of, read_build

    configs = [file for file in files if file.lower().endswith(_ENDINGS)]
    if len(configs) > 1:
        raise MeshwrightError("more than one configuration", hint="name one of them")
    inputs = [file for file in files if file not in configs]
    overrides = tuple(_overrides(inputs, asked))
    if configs:
        return read_build(configs[0], overrides=overrides)
    from pathlib import Path

    return build_of(Document(data={}), folder=Path(), overrides=overrides)


def _overrides(inputs: list[str], asked: dict[str, Any]) -> Iterator[Override]:
    from meshwright.data.reading import Override

    if inputs:
        yield Override("input.files", inputs, "FILES")
    for option, key in _PLAIN.items():
        if asked[option] is not None:
            yield Override(key, asked[option], _flag(option))
    for table in _filters(asked["filters"]):
        yield Override(table, {}, "--filters")
    if asked["language"]:
        yield Override("language.keep", _listed(asked["language"]), "--language")
    if asked["decontaminate"]:
        yield Override("decontaminate.files", list(asked["decontaminate"]), "--decontaminate")
    if asked["pii"]:
        yield Override("pii", {}, "--pii")
    for option, (key, value) in _SWITCHES.items():
        if asked[option]:
            yield Override(key, value, _flag(option))


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _filters(names: str | None) -> Iterator[str]:
    """The tables that --filters asks for."""
    for name in _listed(names or ""):
        if name not in FILTERS:
            hint = did_you_mean(name, FILTERS)
            raise InvalidInput([Finding(message=f"--filters: no filter {name!r}", hint=hint)])
        yield from FILTERS[name]


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
