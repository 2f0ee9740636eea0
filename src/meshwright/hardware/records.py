"""The data files: one TOML file a GPU, node or fabric, found by file name, name or alias."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from meshwright.base.errors import MeshwrightError, UnknownName
from meshwright.base.names import nearest
from meshwright.base.pattern import pattern
from meshwright.base.shipped import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Kind = Literal["gpus", "nodes", "fabrics"]
Record = dict[str, Any]

_NOUN = {"gpus": "GPU", "nodes": "node", "fabrics": "fabric"}


def record(kind: Kind, name: str) -> Record:
    """The data file of `name`, its file name under "slug".

    Case and separators do not count ("rtx 4090" is "RTX-4090"). Raises `UnknownName` with the
    nearest names, or `MeshwrightError` listing the choices when the name fits several devices.
    """
    found = _by_file_name(kind, name) or _by_alias(kind, name) or _by_memory(kind, name)
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(short_name(r) for r in found)
        raise MeshwrightError(
            f"{_NOUN[kind]} {name!r} is ambiguous: {_titles(found)}", hint=f"type {choices}"
        )
    raise UnknownName(_NOUN[kind], name, suggestions=_suggestions(kind, name))


@lru_cache(maxsize=3)
def records(kind: Kind) -> tuple[Record, ...]:
    """Every data file of a kind, by file name."""
    return tuple(_read(kind, slug) for slug in _slugs(kind))


def spellings(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Every name that means this entry and no other."""
    return (entry["slug"], entry["name"], *entry.get("aliases", ()))


def short_name(entry: Mapping[str, Any]) -> str:
    """The short name to type: the first alias or the name, whichever is shorter."""
    return str(min([entry["name"], *entry.get("aliases", ())[:1]], key=len))


@lru_cache(maxsize=1)
def prices() -> Mapping[str, Any]:
    """List prices by GPU file name, see data/prices.toml."""
    return tomllib.loads((_folder() / "prices.toml").read_text(encoding="utf-8"))


def _by_file_name(kind: Kind, name: str) -> list[Record]:
    slug = name.strip().lower()
    return [_read(kind, slug)] if slug in _slugs(kind) else []


def _by_alias(kind: Kind, name: str) -> list[Record]:
    wanted = _key(name)
    likely = [_read(kind, slug) for slug in _slugs(kind) if wanted in _letters(kind, slug)]
    found = [r for r in likely if wanted in map(_key, spellings(r))]
    return found or [r for r in likely if wanted in map(_key, r.get("ambiguous_aliases", ()))]


_WITH_MEMORY = pattern(r"(.+?)[-_ ](\d+)[-_ ]?gi?b?([-_ ]?(?:sxm\d?|pcie|nvl))?", re.IGNORECASE)


def _by_memory(kind: Kind, name: str) -> list[Record]:
    """The device of a name that adds its memory, as "H200-141G" or "MI300X 192GB"."""
    parts = _WITH_MEMORY.fullmatch(name.strip()) if kind == "gpus" else None
    if parts is None:
        return []
    named = _by_alias(kind, parts[1] + (parts[3] or "")) or _by_alias(kind, parts[1])
    return [r for r in named if int(parts[2]) == r.get("marketed_gb")]


def _suggestions(kind: Kind, name: str) -> tuple[str, ...]:
    """The short names of the entries with a spelling near `name`, without repetition."""
    owner = {s: short_name(r) for r in records(kind) for s in spellings(r)}
    near = tuple(dict.fromkeys(owner[s] for s in nearest(name, owner, limit=6)))[:3]
    if near or kind == "gpus":  # `meshwright show gpus` lists those
        return near
    starting = tuple(s for s in _slugs(kind) if name and s.startswith(name[:3].lower()))
    return starting or _slugs(kind)


def _titles(entries: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(e["name"] for e in entries)


_BETWEEN = pattern(r"[\W_]+")


def _key(name: str) -> str:
    return _BETWEEN.sub("", name.lower())


@lru_cache(maxsize=3)
def _slugs(kind: Kind) -> tuple[str, ...]:
    files = (f.name for f in (_folder() / kind).iterdir())
    return tuple(sorted(f.removesuffix(".toml") for f in files if f.endswith(".toml")))


@lru_cache(maxsize=256)
def _letters(kind: Kind, slug: str) -> str:
    """The file name and text of an entry as `_key` has it: a name that it states is in there."""
    return _key(slug) + _key(_text(kind, slug))


@lru_cache(maxsize=256)
def _read(kind: Kind, slug: str) -> Record:
    return {**tomllib.loads(_text(kind, slug)), "slug": slug}


@lru_cache(maxsize=256)
def _text(kind: Kind, slug: str) -> str:
    return (_folder() / kind / f"{slug}.toml").read_text(encoding="utf-8")


def _folder() -> Path:
    return shipped("meshwright.hardware") / "data"
