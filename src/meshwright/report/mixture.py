"""How sources were mixed, in words: what bounds the output, what repeats, what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.units import format_count
from meshwright.report.check.visible import harmless
from meshwright.report.shares import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.shards.manifest import Manifest, SourceRecord

_ONCE = 0.005  # of a repeat that does not show


def mixture_lines(manifest: Manifest) -> Iterator[str]:
    """Nothing where no source has a weight."""
    if all(source.weight is None for source in manifest.sources):
        return
    scarcest = max(manifest.sources, key=repeats_of)
    yield f"mix for training: {_bound(manifest, scarcest)}"
    for source in manifest.sources:
        unused = max(0, _own(source) - source.train_tokens)
        left = f"{format_count(unused)} of its {format_count(_own(source))} tokens"
        yield (
            f"  {harmless(source.name)}: used {repeats_of(source):.2f} times, "
            + (
                f"{left} ({percent(unused / _own(source))}) unused"
                if 1 - repeats_of(source) > _ONCE
                else "nothing unused"
            )
        )


def repeats_of(source: SourceRecord) -> float:
    """How often what a source has for training is in the output."""
    return source.train_tokens / max(1, _own(source))


def _own(source: SourceRecord) -> int:
    return source.tokens - source.valid_tokens


def _bound(manifest: Manifest, scarcest: SourceRecord) -> str:
    """Why the output is not larger."""
    mix = manifest.settings.get("mix", {})
    name, most = harmless(scarcest.name), mix.get("max_repeats", 0.0)
    if mix.get("tokens") is not None:
        return f"mix.tokens = {format_count(mix['tokens'])} bounds it; {name} is the scarcest"
    if repeats_of(scarcest) >= most * (1 - _ONCE):
        return f"{name} bounds it, used as often as mix.max_repeats = {most:g} allows"
    return f"every source is used whole; {name}, the scarcest for its weight, most often"
