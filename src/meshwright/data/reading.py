"""config.toml: reads the settings of a build, and writes them.

    seed = 0
    [input]                       # or several [[source]], each with a name and a weight
    files = ["raw/*.jsonl.zst"]   # paths in the file are relative to its own folder
    [tokenizer]
    file = "qwen/tokenizer.json"
    [gopher_quality]              # a step whose table is absent is not taken
    [pack]
    seq_len = 8192
    [output]
    folder = "shards"
    shard_tokens = "256M"         # sizes and counts may have units

The tables and keys are those of `settings`. Everything wrong is reported at once, each finding with
its line and column. What `write_build` writes reads back to an equal `Build`.
"""

from __future__ import annotations

import math
import os
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.decode import REFUSED, Decoder, type_hints
from meshwright.base.encode import plain, to_toml
from meshwright.base.errors import InvalidInput, InvalidUnit
from meshwright.base.locate import SYNTAXES, Document, parse, read
from meshwright.base.noun import dataclass
from meshwright.base.problem import Problem
from meshwright.base.units import parse_bytes, parse_length, parse_tokens
from meshwright.data.ranges import problems_of
from meshwright.data.settings import Build, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from meshwright.base.finding import Finding
    from meshwright.base.locate import Key

QUANTITIES: dict[
    Key, Callable[[str | float], float]
] = {  # keys whose value may be text with a unit
    ("limits", "document_bytes"): parse_bytes,
    ("dedup", "memory_bytes"): parse_bytes,
    ("output", "shard_tokens"): parse_tokens,
    ("pack", "seq_len"): parse_length,  # k is 1,024, as for --seq-len
    ("mix", "tokens"): parse_tokens,
}
_PATHS = (  # keys that hold one path or a list of them
    ("input", "files"),
    ("tokenizer", "file"),
    ("decontaminate", "files"),
    ("output", "folder"),
)
_TABLES = tuple(field.name for field in fields(Build) if field.name != "sources")


@dataclass(frozen=True, slots=True)
class Override:
    """A value given otherwise than in the file, as `words` ("--seq-len"); it wins."""

    key: str  # dotted; "input.X" is X of every source
    value: Any
    words: str


def read_build(path: str | Path, *, overrides: Sequence[Override] = ()) -> Build:
    """The settings in a config.toml (or YAML or JSON of the same shape).

    InvalidInput with every finding when they cannot be read or make no sense.
    """
    syntax = SYNTAXES.get(Path(path).suffix.lower(), "toml")
    document = read(path, syntax=syntax)
    return build_of(document, folder=Path(path).parent, overrides=overrides)


def parse_build(text: str, *, file: str = "config.toml", folder: str | Path = ".") -> Build:
    """Like `read_build` for a text; paths inside it are relative to `folder`."""
    return build_of(parse(text, syntax="toml", file=file), folder=Path(folder))


def build_of(document: Document, *, folder: Path, overrides: Sequence[Override] = ()) -> Build:
    """The settings in a document of any syntax, with what `overrides` says instead."""
    if not isinstance(document.data, dict):
        raise InvalidInput([document.finding((), f"{document.file} is no table of settings")])
    _check_overrides(document, overrides)
    merged = _merged(_resolved(document, folder), overrides)
    decoder = _Settings(merged)
    decoder.unknown_keys((), ("input", "source", *_TABLES))
    values = decoder.entries({name: type_hints(Build)[name] for name in _TABLES}, ())
    sources = _sources(decoder)
    if "output" not in values:
        decoder.missing(("output",), hint='add [output] with folder = "shards", or give -o shards/')
    if decoder.findings:
        raise InvalidInput(_in_order(decoder.findings, overrides))
    build = Build(sources=sources, **values)
    problems = [_of_document(problem, merged) for problem in problems_of(build)]
    if problems:
        raise InvalidInput(_in_order([merged.problem(found) for found in problems], overrides))
    return build


def write_build(build: Build, *, folder: str | Path = ".") -> str:
    """The config.toml of a build, to lie in `folder`: what differs from the defaults."""
    tables: dict[str, Any] = plain(build)
    sources = tables.pop("sources")
    for table, key in _path_entries(tables | {"input": None, "source": sources}):
        table[key] = _from_folder(table[key], folder)
    named = {"input": sources[0]} if len(sources) == 1 else {"source": sources}
    return to_toml(named | tables)


class _Settings(Decoder):
    """Also takes quantities with units, and one text where a list of texts is wanted."""

    def scalar(self, wanted: type, key: Key) -> Any:
        """A value, its unit taken off where it may have one."""
        value, unit = self.document.value(key), QUANTITIES.get(key[-2:])
        if wanted is float and unit is None and isinstance(value, str):
            return self.refuse(key, "is not a number", hint=f"write {_as_number(value)}")
        if unit is None or not isinstance(value, str):
            return super().scalar(wanted, key)
        try:
            number = unit(value)
        except InvalidUnit as error:
            return self.refuse(key, error.message.partition("' ")[2], hint=error.hint)
        if wanted is int and number != int(number):
            return self.refuse(key, "is not a whole number", hint="write one")
        return wanted(number)

    def sequence(self, args: tuple[Any, ...], key: Key) -> Any:
        """A tuple; a single text stands for a list of one."""
        value = self.document.value(key)
        if args[0] is str and isinstance(value, str):
            return (value,)
        return super().sequence(args, key)


def _as_number(text: str) -> str:
    """What to write for a share that was written as text: 0.05 for "5%"."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        return "a number, as 0.05"
    return f"{value:g}, without quotes" if math.isfinite(value) else "a number, as 0.05"


def _sources(decoder: _Settings) -> tuple[Source, ...]:
    """The sources: the one of [input], or those of [[source]]."""
    given = decoder.table(())
    if "input" in given and "source" in given:
        decoder.refuse(("input",), "stands beside [[source]]", hint="make it a [[source]] too")
        return ()
    if "input" in given:
        found = decoder.record(Source, ("input",))
        return () if found is REFUSED else (found,)
    listed = given.get("source")
    if not isinstance(listed, list) or not listed:
        hint = 'add [input] with files = ["raw/*.jsonl"], or name files on the command line'
        decoder.missing(("input",), hint=hint)
        return ()
    records = [decoder.record(Source, ("source", place)) for place in range(len(listed))]
    return tuple(record for record in records if record is not REFUSED)


def _resolved(document: Document, folder: Path) -> Document:
    """The document with paths that are relative to its folder made to be found from here."""
    data = deepcopy(document.data)
    for table, key in _path_entries(data):
        table[key] = _from_here(table[key], folder)
    return Document(
        data=data,
        file=document.file,
        places=document.places,
        spans=document.spans,
        key_spans=document.key_spans,
    )


def _path_entries(data: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """The tables and keys of a document that hold paths."""
    tables = [(data.get(table), key) for table, key in _PATHS]
    sources = data.get("source")
    tables += [(source, "files") for source in (sources if isinstance(sources, list) else ())]
    for table, key in tables:
        if isinstance(table, dict) and key in table:
            yield table, key


def _from_folder(value: Any, folder: str | Path) -> Any:
    """A path that is relative to here, or a list of them, as it must stand in that folder."""
    if isinstance(value, list):
        return [_from_folder(item, folder) for item in value]
    if not _is_relative(value) or os.path.abspath(folder) == os.getcwd():
        return value
    return os.path.relpath(value, folder) + ("/" if value[-1] == "/" else "")


def _is_relative(value: Any) -> bool:
    """Whether a value is a path that depends on the folder it is read in."""
    if not isinstance(value, str) or not value or value == "-" or "://" in value:
        return False
    return not os.path.isabs(os.path.expanduser(value))


def _from_here(value: Any, folder: Path) -> Any:
    """A path of the file, or a list of them; URLs and standard input stay as they are."""
    if isinstance(value, list):
        return [_from_here(item, folder) for item in value]
    if not _is_relative(value):
        return os.path.expanduser(value) if isinstance(value, str) else value
    return os.path.normpath(folder / value) + ("/" if value[-1] == "/" else "")


def _check_overrides(document: Document, overrides: Sequence[Override]) -> None:
    """InvalidInput for files beside several sources: which of these would they be?"""
    if "source" in document.data and any(one.key == "input.files" for one in overrides):
        message = "files are named beside a configuration that has [[source]]"
        hint = "name the configuration alone, or add the files to it as a [[source]]"
        raise InvalidInput([document.finding(("source",), message, hint=hint)])


def _merged(document: Document, overrides: Sequence[Override]) -> Document:
    """The document as if the overrides stood in it."""
    data: dict[str, Any] = document.data
    for override in overrides:
        table, _, name = override.key.rpartition(".")
        is_path = tuple(override.key.split(".")) in _PATHS
        value = _from_here(override.value, Path()) if is_path else override.value
        for target in _targets(data, table):
            if value != {}:  # a step that is only asked for keeps its settings
                target[name] = value
            target.setdefault(name, {})
    return Document(data=data, file=document.file, places=document.places, spans=document.spans)


def _targets(data: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """The tables of that name: every source for "input"; one is made where there is none."""
    if not table:
        return [data]
    listed = data.get("source")
    if table == "input" and isinstance(listed, list):
        return [source for source in listed if isinstance(source, dict)]
    found = data.setdefault(table, {})
    return [found] if isinstance(found, dict) else []


def _of_document(problem: Problem, document: Document) -> Problem:
    """The problem under the key that the document uses: [input] is the only source."""
    if problem.key.startswith("source.0.") and "input" in document.data:
        key = problem.key.replace("source.0.", "input.", 1)
        return Problem(key, problem.value, problem.reason, problem.hint)
    return problem


def _in_order(findings: list[Finding], overrides: Sequence[Override]) -> list[Finding]:
    """Findings by place; those about an override name it instead of the file."""
    words: Mapping[str, str] = {override.key: override.words for override in overrides}
    said = [_said(finding, words) for finding in findings]
    return sorted(said, key=lambda finding: (finding.file, finding.line, finding.column))


def _said(finding: Finding, words: Mapping[str, str]) -> Finding:
    for key, flag in words.items():
        if finding.key == key or finding.key.startswith(f"{key}."):
            message = finding.message.replace(f"{finding.key} = ", f"{flag} ", 1)
            return finding.replace(message=message, file="", line=0, column=0)
    return finding
