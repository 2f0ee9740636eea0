"""What differs between the build that a folder holds and the one that is asked for, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.base.words import shown
from meshwright.data.shards.names import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.settings import Build
    from meshwright.data.stages.layout import Job

_SHOWN = 4


def settings_of(build: Build) -> dict[str, Any]:
    """All settings as JSON has them, but where the output lies and whether the work stays."""
    found: dict[str, Any] = _plain(asdict(build))
    for name in ("folder", "keep_work"):
        del found["output"][name]
    found["source"] = {source["name"]: source for source in found.pop("sources")}
    return found


def differences(record: Mapping[str, Any], job: Job) -> str:
    """The first few, old -> new, after ": "; "" when the record does not tell."""
    if "settings" not in record:
        return ""
    found = list(_differences(record, job))
    more = f"; and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    return f": {'; '.join(found[:_SHOWN])}{more}" if found else ""


def _differences(record: Mapping[str, Any], job: Job) -> Iterator[str]:
    yield from _changes("", record["settings"], settings_of(job.build))
    before = dict(map(tuple, record.get("digests", [])))
    for name, digest in job.digests:
        if before.get(name, digest) != digest:
            what = getattr(job.build.tokenizer, "file", name) if name == "tokenizer" else name
            yield f"{what} has other content"
    inputs = {found["path"]: found for found in record.get("inputs", [])}
    yield from _changed_inputs(inputs, job)
    if record["settings"]["source"] == settings_of(job.build)["source"]:  # else that was said
        there = [found.path for found in job.inputs]
        yield from (f"{printable(path)} is new" for path in there if path not in inputs)
        yield from (f"{printable(path)} is gone" for path in inputs if path not in there)


def _changed_inputs(before: Mapping[str, Mapping[str, Any]], job: Job) -> Iterator[str]:
    for found in job.inputs:
        old = before.get(found.path)
        if old is None:
            continue
        if old["bytes"] != found.bytes:
            yield f"{printable(found.path)}: {old['bytes']:,} bytes -> {found.bytes:,}"
        elif old["stamp"] != found.version:
            yield f"{printable(found.path)} has other content"


def _changes(key: str, old: Any, new: Any) -> Iterator[str]:
    """Settings that differ, each with its key; a table that came or went as a whole."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _changes(f"{key}.{name}".lstrip("."), old.get(name), new.get(name))
    elif isinstance(old or new, dict) and None in (old, new):
        yield f"{key} {'is new' if old is None else 'is gone'}"
    else:
        yield f"{key}: {_value(old)} -> {_value(new)}"


def _value(value: Any) -> str:
    return "none" if value in (None, "") else shown(value)


def _plain(value: Any) -> Any:
    """Tuples as lists, as they come back from JSON."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
