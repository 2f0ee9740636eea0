"""Folders of shards as pages and records: what they hold, whether they are whole, rows as text."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, table_of
from meshwright.base.units import format_bytes, format_count, format_number
from meshwright.data.reasons import REASONS
from meshwright.report.check.visible import harmless
from meshwright.report.findings import finding_lines, finding_record
from meshwright.report.repairs import repair_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.shards.manifest import Manifest
    from meshwright.data.shards.show import Located, Part, Shown
    from meshwright.data.shards.stats import Lengths, SplitStats, Stats
    from meshwright.data.shards.verify import Verified
    from meshwright.report.page import Block

_EXCERPT = 60  # characters of an example
_BAR = 40  # characters of the longest bar of the histogram
_CLUSTERS = 5


def _columns(*named: tuple[str, str]) -> tuple[Column, ...]:
    """Columns of which the first is aligned left."""
    return tuple(
        Column(key=key, title=title, align="right" if place else "left")
        for place, (key, title) in enumerate(named)
    )


_SPLIT_COLUMNS = _columns(
    ("split", "split"),
    ("shards", "shards"),
    ("documents", "documents"),
    ("tokens", "tokens"),
    ("rows", "rows"),
    ("padding", "padding"),
    ("cut", "documents cut"),
    ("imbalance", "costliest / mean row"),
)
_STRATEGY_COLUMNS = _columns(
    ("strategy", "packing"),
    ("rows", "rows"),
    ("padding", "padding"),
    ("cut", "documents cut"),
    ("needless", "of these shorter than a row"),
)
_SOURCE_COLUMNS = _columns(
    ("name", "source"),
    ("documents", "kept"),
    ("tokens", "tokens"),
    ("bytes_per_token", "bytes/token"),
    ("train_tokens", "train tokens"),
    ("share", "share"),
    ("weight", "weight"),
    ("repeats", "repeats"),
    ("valid_tokens", "valid tokens"),
)
_SOURCE_COLUMNS_BEFORE_MIX = tuple(
    replace(column, title={"documents": "before the mix"}.get(column.key, column.title))
    for column in _SOURCE_COLUMNS
)
_REASON_COLUMNS = (
    Column(key="reason", title="reason"),
    Column(key="documents", title="documents", align="right"),
    Column(key="share", title="share", align="right"),
    Column(key="example", title="for example"),
)


# Statistics


def stats_page(folder: str, stats: Stats) -> list[Block]:
    """Everything that `data stats` prints."""
    page: list[Block] = [*_headline(folder, stats), ""]
    page += _splits(stats)
    page += _sources(stats.manifest)
    page += _reasons(stats.manifest)
    page += _clusters(stats.manifest)
    for split in stats.splits:
        page += _lengths(split)
    return [*page, f"next: meshwright data verify {folder}"]


def stats_record(folder: str, stats: Stats) -> dict[str, Any]:
    """The same for JSON, with every figure in full."""
    manifest = stats.manifest
    return {
        "folder": folder,
        "files": stats.files,
        "bytes": stats.bytes,
        "tool": manifest.tool,
        "seed": manifest.seed,
        "vocabulary": asdict(manifest.vocabulary) if manifest.vocabulary else None,
        "packed": asdict(manifest.packed) if manifest.packed else None,
        "splits": [
            {**asdict(split), "fill": split.fill, "imbalance": split.imbalance}
            for split in stats.splits
        ],
        "strategies": {name: asdict(one) for name, one in manifest.strategies.items()},
        "sources": [asdict(source) for source in manifest.sources],
        "counts": {reason or "kept": count for reason, count in manifest.counts.items()},
        "rejected": manifest.facts.get("rejected", 0),
        "repaired": manifest.facts.get("repaired", 0),
        "masked": manifest.masked,
        "examples": {name: [asdict(e) for e in found] for name, found in manifest.examples.items()},
        "clusters": [asdict(cluster) for cluster in manifest.clusters],
        "inputs": [asdict(found) for found in manifest.inputs],
    }


def _headline(folder: str, stats: Stats) -> Iterator[str]:
    """The folder in two lines."""
    manifest = stats.manifest
    documents = sum(split.documents for split in stats.splits)
    size = f"{stats.files} files, {format_bytes(stats.bytes)}"
    if manifest.packed is None or manifest.vocabulary is None:
        yield f"{folder}: cleaned text of {manifest.counts.get('', 0):,} documents; {size}"
        return
    tokens = sum(split.tokens for split in stats.splits)
    yield f"{folder}: {format_count(tokens)} tokens of {documents:,} documents; {size}"
    packed, vocabulary = manifest.packed, manifest.vocabulary
    yield (
        f"rows of {packed.seq_len:,} tokens, packed by {harmless(packed.strategy)}, .bin holds "
        f"{packed.layout}; {vocabulary.vocab_size:,} ids as {vocabulary.dtype}, "
        f"end of text {vocabulary.eod_id}, padding {vocabulary.pad_id}"
    )


def _splits(stats: Stats) -> Iterator[Block]:
    """Tables of the splits, and of what other packing would make of them."""
    if not stats.splits:
        return
    records = [
        {
            **asdict(split),
            "documents": f"{split.documents:,}",
            "tokens": f"{split.tokens:,}",
            "rows": f"{split.rows:,}",
            "padding": percent(1 - split.fill),
            "cut": _part(split.cut, split.documents),
            "imbalance": f"{split.imbalance:.2f}",
        }
        for split in stats.splits
    ]
    yield table_of(_SPLIT_COLUMNS, records)
    yield ""
    yield from _strategies(stats.manifest)


def _strategies(manifest: Manifest) -> Iterator[Block]:
    if manifest.packed is None or not manifest.strategies:
        return
    documents = sum(shard.documents for shard in manifest.shards)
    seq_len, used = manifest.packed.seq_len, manifest.packed.strategy
    longer = min(one.cut for one in manifest.strategies.values())  # than a row: cut by all
    records = [
        {
            "strategy": harmless(f"{name} (used)" if name == used else name),
            "rows": f"{one.rows:,}",
            "padding": percent(one.padding / max(1, one.rows * seq_len)),
            "cut": _part(one.cut, documents),
            "needless": f"{one.cut - longer:,}",
        }
        for name, one in sorted(manifest.strategies.items(), key=lambda pair: pair[0] != used)
    ]
    yield table_of(_STRATEGY_COLUMNS, records)
    yield ""


def packing_line(manifest: Manifest) -> str:
    """The three strategies in a line: "best-fit 0.02% padding, concatenate cuts 42%, ..."."""
    if manifest.packed is None or not manifest.strategies:
        return ""
    documents = max(1, sum(shard.documents for shard in manifest.shards))
    used = manifest.packed.strategy
    words = []
    for name, one in sorted(manifest.strategies.items(), key=lambda pair: pair[0] != used):
        padding = percent(one.padding / max(1, one.rows * manifest.packed.seq_len))
        would = "" if name == used else "would "
        pads, cuts = ("pads", "cuts") if name == used else ("pad", "cut")
        cut = percent(one.cut / documents)
        words.append(f"{harmless(name)} {would}{pads} {padding} and {cuts} {cut} of the documents")
    return "; ".join(words)


def _sources(manifest: Manifest) -> Iterator[Block]:
    if not manifest.sources:
        return
    total = max(1, sum(source.train_tokens for source in manifest.sources))
    records = []
    for source in manifest.sources:
        own = max(1, source.tokens - source.valid_tokens)
        records.append(
            {
                "name": harmless(source.name),
                "documents": f"{source.documents:,}",
                "tokens": f"{source.tokens:,}",
                "bytes_per_token": f"{source.text_bytes / max(1, source.tokens):.2f}",
                "train_tokens": f"{source.train_tokens:,}",
                "share": percent(source.train_tokens / total),
                "weight": "" if source.weight is None else f"{source.weight:g}",
                "repeats": f"{source.train_tokens / own:.2f}",
                "valid_tokens": f"{source.valid_tokens:,}",
            }
        )
    left_out = manifest.counts.get("mix", 0)
    yield table_of(_SOURCE_COLUMNS_BEFORE_MIX if left_out else _SOURCE_COLUMNS, records)
    if left_out:
        yield f"the mix left out {left_out:,} of the documents before it"
    yield ""


def _reasons(manifest: Manifest) -> Iterator[Block]:
    """What was dropped and why, with an example of each."""
    total = sum(manifest.counts.values())
    kept = manifest.counts.get("", 0)
    rejected = manifest.facts.get("rejected", 0)
    aside = f"; {rejected:,} more could not be read: rejected.jsonl" if rejected else ""
    yield f"{total:,} documents read, {_part(kept, total)} kept{aside}"
    yield from repair_lines(manifest)
    records = [
        {
            "reason": harmless(REASONS.get(reason, reason)),
            "documents": f"{count:,}",
            "share": percent(count / max(1, total)),
            "example": _example(manifest, reason),
        }
        for reason, count in sorted(manifest.counts.items(), key=lambda pair: -pair[1])
        if reason
    ]
    if records:
        yield table_of(_REASON_COLUMNS, records)
    yield ""


def _example(manifest: Manifest, reason: str) -> str:
    found = manifest.examples.get(reason)
    if not found:
        return ""
    words = " ".join(harmless(found[0].excerpt).split())
    excerpt = f" {words[:_EXCERPT]}..." if words else ""
    return harmless(f"{found[0].file}:{found[0].line}") + excerpt


def _clusters(manifest: Manifest) -> Iterator[Block]:
    """The documents with the most duplicates."""
    if not manifest.clusters:
        return
    yield "most repeated:"
    for cluster in manifest.clusters[:_CLUSTERS]:
        yield f"  {cluster.duplicates:,} x {harmless(cluster.file)}:{cluster.line}"
    yield ""


def _lengths(split: SplitStats) -> Iterator[Block]:
    """Percentiles and histogram of document lengths."""
    lengths = split.lengths
    if lengths is None:
        return
    points = ", ".join(f"p{percent} {value:,}" for percent, value in lengths.percentiles.items())
    mean, longest = format_number(lengths.mean), f"longest {lengths.longest:,}"
    yield f"{split.split}, tokens a document: mean {mean}, {points}, {longest}"
    yield from _histogram(lengths, split.documents)
    yield ""


def _histogram(lengths: Lengths, documents: int) -> Iterator[str]:
    most = max(lengths.histogram.values())
    width = max(len(f"{top:,}") for top in lengths.histogram)
    for top, count in lengths.histogram.items():
        bar = "#" * -(-count * _BAR // most)
        yield f"  up to {top:>{width},}  {percent(count / documents):>6}  {bar}"


def percent(share: float) -> str:
    """A share with two digits that count, and never 0 % or 100 % of what is not."""
    if share and share < 0.0001:
        return "<0.01%"
    return f"{share:.2%}" if share < 0.01 else f"{min(share, 0.999) if share < 1 else share:.1%}"


def _part(count: int, total: int) -> str:
    return f"{count:,} ({percent(count / max(1, total))})"


# Verification


def verified_page(folder: str, verified: Verified) -> list[Block]:
    """Everything that `data verify` prints."""
    lines: list[Block] = []
    for finding in verified.findings:
        lines += [*finding_lines(finding), ""]
    if verified.findings:
        count = len(verified.findings)
        return [*lines, f"{count} finding{'' if count == 1 else 's'} in {folder}"]
    again = f", {verified.encoded_again} documents encoded again" if verified.encoded_again else ""
    return [
        f"{folder} is whole: {verified.files} files, {format_bytes(verified.bytes)}, every byte "
        f"as it was written; {verified.shards} shards checked inside{again}"
    ]


def verified_record(folder: str, verified: Verified) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "folder": folder,
        "whole": not verified.findings,
        "files": verified.files,
        "bytes": verified.bytes,
        "shards": verified.shards,
        "encoded_again": verified.encoded_again,
        "findings": [finding_record(finding) for finding in verified.findings],
    }


# Rows


def shown_page(shown: Shown, *, characters: int, ids: bool) -> list[Block]:
    """A row or a document, piece by piece."""
    page: list[Block] = [_shown_headline(shown)]
    for part in shown.parts:
        page += ["", _border(shown, part)]
        if ids:
            page.append(" ".join(map(str, part.ids)))
        elif part.text is None:
            page.append("(no tokenizer here that has all of these tokens: --ids shows them)")
        else:
            page += harmless(_shortened(part.text, characters)).split("\n")
    if shown.padding:
        page += ["", f"--- {shown.padding:,} tokens of padding"]
    return page


def _shown_headline(shown: Shown) -> str:
    parts = f"{len(shown.parts)} piece{'' if len(shown.parts) == 1 else 's'}"
    tokens = sum(len(part.ids) for part in shown.parts)
    what = f"document {shown.document}" if shown.row is None else f"row {shown.row:,}"
    what += f" of {shown.rows:,}" if shown.row is not None else ""
    return (
        f"{what} in {shown.split} ({shown.shard}): {tokens:,} tokens in {parts}, "
        f"cost {format_count(shown.cost)}"
    )


def _border(shown: Shown, part: Part) -> str:
    """The line above a piece."""
    end = part.offset + len(part.ids)
    whole = len(part.ids) == part.of
    which = f"all {part.of:,}" if whole else f"{part.offset:,} to {end - 1:,} of {part.of:,}"
    where = f"document {part.document:,}" if shown.row is not None else f"row {part.row:,}"
    origin = f", {harmless(part.origin.place)}" if part.origin else ""
    name = f" ({harmless(part.origin.id)})" if part.origin and part.origin.id else ""
    return f"--- {where}: {which} tokens{origin}{name}"


def _shortened(text: str, characters: int) -> str:
    """The beginning and the end of a text; all of it when that is not longer, or for 0."""
    if not characters or len(text) <= characters:
        return text
    head = characters * 2 // 3
    left_out = len(text) - characters
    return (
        f"{text[:head]}\n[... {left_out:,} characters ...]\n{text[len(text) - characters + head :]}"
    )


def shown_record(shown: Shown) -> dict[str, Any]:
    """The same for JSON, texts and ids in full."""
    return asdict(shown)


def origin_page(located: Located) -> list[Block]:
    """What became of a document, for one that is in no shard."""
    origin, split = located.origin, located.split
    lines: list[Block] = [f"{harmless(origin.place)}: {origin.bytes:,} bytes as read"]
    if origin.reason:
        lines.append(f"dropped: {harmless(origin.reason)}: {harmless(located.why)}")
    if origin.duplicate_of_input is not None:
        other = f"{harmless(origin.duplicate_of_input)}:{origin.duplicate_of_line}"
        lines.append(f"repeats {other}, similarity {origin.similarity:.2f}")
    if split is not None:
        times = f", {origin.copies} times" if origin.copies > 1 else ""
        lines.append(f"kept{times}: next: --split {split} --document {located.document}")
    elif not origin.reason:
        lines.append("kept: its text is in text-*.parquet, the folder holds no tokens")
    return lines


def origin_record(located: Located) -> dict[str, Any]:
    """The same for JSON."""
    where = {"split": located.split, "document_of_split": located.document}
    return {**asdict(located.origin), "why": located.why, **where}
