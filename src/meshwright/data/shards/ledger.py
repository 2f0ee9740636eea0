"""Whether the manifest's counts are those of documents.parquet, rejected.jsonl and config.toml."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import InvalidInput
from meshwright.data.differences import settings_of
from meshwright.data.needs import need
from meshwright.data.reading import read_build
from meshwright.data.shards.names import CONFIG, REJECTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from meshwright.data.shards.manifest import Manifest

COLUMNS = ("input", "reason", "duplicate_of_input", "duplicate_of_line")  # that `add` needs
_BLOCK_BYTES = 1 << 20
_PATHS = ("files", "file")  # keys whose values are told otherwise in config.toml


class Ledger:
    """Adds up documents.parquet by input and by what duplicates repeat."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.read: Counter[str] = Counter()
        self.kept: Counter[str] = Counter()  # those that the mix leaves out too
        self.repeated = Counter({(c.file, c.line): 0 for c in manifest.clusters})

    def add(self, batch: Any) -> None:
        """A batch of rows."""
        for name, reason, count in _grouped(batch, ["input", "reason"]):
            self.read[name] += count
            if reason in ("", "mix"):
                self.kept[name] += count
        if self.repeated:
            for name, line, count in _grouped(batch, ["duplicate_of_input", "duplicate_of_line"]):
                if (name, line) in self.repeated:
                    self.repeated[name, line] += count

    def wrong(self) -> Iterator[str]:
        """What the manifest says otherwise, once all rows are added."""
        source_of = {found.path: found.source for found in self.manifest.inputs}
        for found in self.manifest.inputs:
            if found.documents != self.read[found.path]:
                yield _differ(f"documents of {found.path}", found.documents, self.read[found.path])
        kept: Counter[str] = Counter()
        for name, count in self.kept.items():
            kept[source_of.get(name, "")] += count
        for source in self.manifest.sources:
            if source.documents != kept[source.name]:
                told = f"documents kept of source {source.name}"
                yield _differ(told, source.documents, kept[source.name])
        for cluster in self.manifest.clusters:
            count = self.repeated[cluster.file, cluster.line]
            if cluster.duplicates != count:
                told = f"duplicates of {cluster.file}:{cluster.line}"
                yield _differ(told, cluster.duplicates, count)


def wrong_facts(folder: Path, manifest: Manifest) -> Iterator[str]:
    """Counts and settings that are told elsewhere in the folder too."""
    repaired = sum(found.repaired for found in manifest.inputs)
    if manifest.facts.get("repaired", repaired) != repaired:
        yield _differ("repaired documents", manifest.facts["repaired"], repaired)
    rejected = _lines(folder / REJECTED) if REJECTED in manifest.files else 0
    if manifest.facts.get("rejected", rejected) != rejected:
        yield _differ("rejected lines", manifest.facts["rejected"], rejected)
    names = {found.path for found in manifest.inputs}
    for example in (one for found in manifest.examples.values() for one in found):
        if example.file not in names:
            yield f"takes an example from {example.file}, which is none of its inputs"
    if manifest.settings and manifest.settings.get("seed") != manifest.seed:
        yield f"has the seed {manifest.seed}, its settings {manifest.settings.get('seed')}"
    if CONFIG in manifest.files:
        yield from _wrong_settings(folder / CONFIG, manifest.settings)


def _wrong_settings(path: Path, told: Mapping[str, Any]) -> Iterator[str]:
    """Settings that are not those of config.toml, whose values are in their ranges."""
    try:
        made = settings_of(read_build(path))
    except InvalidInput as error:
        yield f"lies beside a {CONFIG} that cannot be read: {error}"
        return
    made["sources"] = list(made.pop("source").values())
    for key in sorted(_unequal("", told, made)):
        yield f"tells another {key} in its settings than {CONFIG} does"


def _unequal(key: str, one: Any, other: Any) -> Iterator[str]:
    """The dotted keys at which two settings differ; of paths only their number counts."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {*one, *other}:
            yield from _unequal(f"{key}.{name}".lstrip("."), one.get(name), other.get(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, pair in enumerate(zip(one, other, strict=True)):
            yield from _unequal(f"{key}.{place}", *pair)
    elif type(one) is str and type(other) is str and {*key.split(".")} & {*_PATHS}:
        return
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield key


def _grouped(batch: Any, columns: list[str]) -> list[tuple[Any, Any, int]]:
    """Each pair of values of two columns with its number of rows."""
    pyarrow = need("pyarrow", "reading documents.parquet")
    table = pyarrow.Table.from_batches([batch]).select(columns)
    found = table.group_by(columns).aggregate([([], "count_all")])
    return list(
        zip(*(found.column(name).to_pylist() for name in (*columns, "count_all")), strict=True)
    )


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK_BYTES), b""))


def _differ(what: str, told: int, found: int) -> str:
    return f"counts {told:,} {what}, the files {found:,}"
