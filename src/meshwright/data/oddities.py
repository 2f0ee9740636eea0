"""Settings that can be met but are hardly meant: told before a build, which goes on."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.base.units import format_count
from meshwright.data.settings import Mix, Output, Pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.data.settings import Build
    from meshwright.data.source.unit import Input

MOST_SHARDS = 10_000
_BYTES_PER_TOKEN = 4.0  # of text, about
_EXPANSION = 4  # of compressed input, about


def oddities_of(build: Build, inputs: Sequence[Input]) -> Iterator[Finding]:
    """One finding for each thing that is odd."""
    if build.tokenizer is None:
        yield from _without_tokens(build)
    else:
        yield from _without_weights(build)
        yield from _small_shards(build, inputs)


def _without_tokens(build: Build) -> Iterator[Finding]:
    """Settings of tokens where there will be none."""
    keys = [
        f"pack.{field.name}"
        for field in fields(Pack)
        if getattr(build.pack, field.name) != field.default
    ]
    keys += ["output.shard_tokens"] * (build.output.shard_tokens != Output(folder="").shard_tokens)
    keys += ["source.weight"] * any(source.weight is not None for source in build.sources)
    keys += ["mix"] * (build.mix != type(build.mix)())
    keys += ["validation"] * (build.validation > 0)
    if keys:
        yield _warning(
            f"no tokenizer, so the output is cleaned text and nothing heeds {', '.join(keys)}",
            hint="name one: --tokenizer tokenizer.json",
        )


def _without_weights(build: Build) -> Iterator[Finding]:
    """Settings of the mix where no source has a weight: all that is kept is used once."""
    if any(source.weight is not None for source in build.sources):
        return
    keys = [
        f"mix.{field.name}"
        for field in fields(Mix)
        if getattr(build.mix, field.name) != field.default
    ]
    if keys:
        yield _warning(
            f"no source has a weight, so all is used once and nothing heeds {', '.join(keys)}",
            hint="give the sources weights: weight = 1 for a single [[source]]",
        )


def _small_shards(build: Build, inputs: Sequence[Input]) -> Iterator[Finding]:
    """Shards that are no use, or too many files."""
    each = build.output.shard_tokens
    if each < build.pack.seq_len:
        yield _warning(
            f"output.shard_tokens = {each:,} is less than a row of {build.pack.seq_len:,}: most of "
            "every shard will be padding",
            hint="256M is usual",
        )
    stored = sum(one.bytes * (_EXPANSION if one.compression else 1) for one in inputs)
    shards = stored / _BYTES_PER_TOKEN / each
    if shards > MOST_SHARDS:
        yield _warning(
            f"output.shard_tokens = {each:,} makes about {format_count(shards)} shards of four "
            "files each",
            hint=f"set it to {format_count(max(each, stored / _BYTES_PER_TOKEN / 100))} or more",
        )


def _warning(message: str, *, hint: str) -> Finding:
    return Finding(message=message, severity=Severity.WARNING, hint=hint)
