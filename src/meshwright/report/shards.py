"""Folders of shards as pages and records: what they hold, whether they are whole, rows as text."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, table_of
from meshwright.base.units import format_bytes, format_count, format_number
from meshwright.base.words import plural, shown
from meshwright.data.reasons import REASONS
from meshwright.data.shards.aside import SetAside
from meshwright.data.shards.names import REJECTED
from meshwright.data.source.rejects import REJECTS
from meshwright.report.check.visible import harmless
from meshwright.report.findings import finding_lines, finding_record
from meshwright.report.mixture import mixture_lines, repeats_of
from meshwright.report.repairs import repair_lines
from meshwright.report.shares import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.shards.manifest import Manifest
    from meshwright.data.shards.show import Located, Part, Shown
    from meshwright.data.shards.stats import Lengths, SplitStats, Stats
    from meshwright.data.shards.verify import Verified
    from meshwright.report.page import Block

_WIDTH = 100  # characters of a line with an example
_IN_FULL = 10**7  # above it numbers are rounded, so that tables are not too wide
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
    ("train_tokens", "train"),
    ("share", "share"),
    ("weight", "weight"),
    ("repeats", "repeats"),
    ("valid_tokens", "valid"),
)
_SOURCE_COLUMNS_BEFORE_MIX = tuple(
    replace(column, title={"documents": "before the mix"}.get(column.key, column.title))
    for column in _SOURCE_COLUMNS
)
_REASON_COLUMNS = (
    Column(key="reason", title="reason"),
    Column(key="documents", title="documents", align="right"),
    Column(key="share", title="share", align="right"),
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
    size = f"{plural(stats.files, 'file')}, {format_bytes(stats.bytes)}"
    if manifest.packed is None or manifest.vocabulary is None:
        yield f"{folder}: cleaned text of {plural(manifest.counts.get('', 0), 'document')}; {size}"
        return
    tokens = sum(split.tokens for split in stats.splits)
    yield f"{folder}: {format_count(tokens)} tokens of {plural(documents, 'document')}; {size}"
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
            "documents": _count(split.documents),
            "tokens": _count(split.tokens),
            "rows": _count(split.rows),
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
            "rows": _count(one.rows),
            "padding": percent(one.padding / max(1, one.rows * seq_len)),
            "cut": _part(one.cut, documents),
            "needless": _count(one.cut - longer),
        }
        for name, one in sorted(manifest.strategies.items(), key=lambda pair: pair[0] != used)
    ]
    yield table_of(_STRATEGY_COLUMNS, records)
    yield ""


def packing_lines(manifest: Manifest) -> Iterator[str]:
    """The three strategies: "best-fit pads 0.02% and cuts 6.1% of the documents"."""
    if manifest.packed is None or not manifest.strategies:
        return
    documents = max(1, sum(shard.documents for shard in manifest.shards))
    used = manifest.packed.strategy
    for name, one in sorted(manifest.strategies.items(), key=lambda pair: pair[0] != used):
        padding = percent(one.padding / max(1, one.rows * manifest.packed.seq_len))
        would = "" if name == used else "would "
        pads, cuts = ("pads", "cuts") if name == used else ("pad", "cut")
        cut = percent(one.cut / documents)
        yield f"  {harmless(name)} {would}{pads} {padding} and {cuts} {cut} of the documents"


def _sources(manifest: Manifest) -> Iterator[Block]:
    if not manifest.sources:
        return
    total = max(1, sum(source.train_tokens for source in manifest.sources))
    records = [
        {
            "name": harmless(source.name),
            "documents": _count(source.documents),
            "tokens": _count(source.tokens),
            "bytes_per_token": f"{source.text_bytes / max(1, source.tokens):.2f}",
            "train_tokens": _count(source.train_tokens),
            "share": percent(source.train_tokens / total),
            "weight": "" if source.weight is None else f"{source.weight:g}",
            "repeats": f"{repeats_of(source):.2f}",
            "valid_tokens": _count(source.valid_tokens),
        }
        for source in manifest.sources
    ]
    left_out = manifest.counts.get("mix", 0)
    yield table_of(_SOURCE_COLUMNS_BEFORE_MIX if left_out else _SOURCE_COLUMNS, records)
    if left_out:
        yield f"the mix left out {left_out:,} of the documents before it"
    yield from mixture_lines(manifest)
    yield ""


def _reasons(manifest: Manifest) -> Iterator[Block]:
    """What was dropped and why, with an example of each."""
    total = sum(manifest.counts.values())
    kept = manifest.counts.get("", 0)
    rejected = manifest.facts.get("rejected", 0)
    aside = f"; {rejected:,} more could not be read: rejected.jsonl" if rejected else ""
    yield f"{plural(total, 'document')} read, {_part(kept, total)} kept{aside}"
    yield from repair_lines(manifest)
    records = [
        {
            "reason": harmless(REASONS.get(reason, reason)),
            "documents": _count(count),
            "share": percent(count / max(1, total)),
        }
        for reason, count in sorted(manifest.counts.items(), key=lambda pair: -pair[1])
        if reason
    ]
    if records:
        yield table_of(_REASON_COLUMNS, records)
        yield ""
        yield from _examples(manifest)
    yield ""


def _examples(manifest: Manifest) -> Iterator[str]:
    """A document of each reason, and how it begins."""
    examples = {reason: found[0] for reason, found in manifest.examples.items() if found}
    if examples:
        yield "for example:"
    for reason, example in sorted(examples.items()):
        line = harmless(f"  {reason}: {example.file}:{example.line}")
        words = " ".join(harmless(example.excerpt).split())
        room = _WIDTH - len(line) - len(" ...")
        yield f"{line} {words[:room]}..." if words and room > 0 else line


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
    points = ", ".join(f"p{point} {value:,}" for point, value in lengths.percentiles.items())
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


def _count(number: int) -> str:
    """A whole number, in full where that is short."""
    return f"{number:,}" if number < _IN_FULL else format_count(number)


def _part(count: int, total: int) -> str:
    return f"{_count(count)} ({percent(count / max(1, total))})"


# Verification


def verified_page(folder: str, verified: Verified) -> list[Block]:
    """Everything that `data verify` prints."""
    lines: list[Block] = []
    for finding in verified.findings:
        lines += [*finding_lines(finding), ""]
    if verified.findings:
        return [*lines, f"{plural(len(verified.findings), 'finding')} in {folder}"]
    encoded = plural(verified.encoded_again, "document")
    again = f", {encoded} encoded again" if verified.encoded_again else ""
    files, shards = plural(verified.files, "file"), plural(verified.shards, "shard")
    return [
        f"{folder} is whole: {files}, {format_bytes(verified.bytes)}, every byte "
        f"as it was written; {shards} checked inside{again}"
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
        page += ["", f"--- {plural(shown.padding, 'token')} of padding"]
    return page


def _shown_headline(shown: Shown) -> str:
    parts = plural(len(shown.parts), "piece")
    tokens = sum(len(part.ids) for part in shown.parts)
    what = f"document {shown.document}" if shown.row is None else f"row {shown.row:,}"
    what += f" of {shown.rows:,}" if shown.row is not None else ""
    return (
        f"{what} in {shown.split} ({shown.shard}): {plural(tokens, 'token')} in {parts}, "
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


def origin_page(folder: str, located: Located | SetAside) -> list[Block]:
    """What became of a document, for one that is in no shard."""
    if isinstance(located, SetAside):
        place = f"{harmless(located.input)}:{located.line}"
        reason = REJECTS.get(located.reason, harmless(located.reason))
        begins = f": {harmless(shown(located.excerpt))}" if located.excerpt else ""
        return [f"{place}{begins}", f"set aside: {reason} ({REJECTED})"]
    origin, split = located.origin, located.split
    lines: list[Block] = [f"{harmless(origin.place)}: {origin.bytes:,} bytes as read"]
    if origin.reason:
        lines.append(f"dropped: {harmless(origin.reason)}: {harmless(located.why)}")
    if origin.duplicate_of_input is not None:
        other = f"{harmless(origin.duplicate_of_input)}:{origin.duplicate_of_line}"
        lines.append(f"repeats {other}, similarity {origin.similarity:.2f}")
    if split is not None:
        times = f", {origin.copies} times" if origin.copies > 1 else ""
        command = f"meshwright data show {shlex.quote(folder)} --split {split}"
        lines.append(f"kept{times}: next: {harmless(command)} --document {located.document}")
    elif not origin.reason:
        lines.append("kept: its text is in text-*.parquet, the folder holds no tokens")
    return lines


def origin_record(located: Located | SetAside) -> dict[str, Any]:
    """The same for JSON."""
    if isinstance(located, SetAside):
        return {**asdict(located), "set_aside": True}
    where = {"split": located.split, "document_of_split": located.document}
    return {**asdict(located.origin), "why": located.why, **where}
