"""What a build did, as a page a person can read, and as a record."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, table_of
from meshwright.base.units import format_bytes, format_count, format_duration, format_rate
from meshwright.base.words import plural
from meshwright.report.check.visible import harmless
from meshwright.report.mixture import mixture_lines
from meshwright.report.repairs import repair_lines
from meshwright.report.shards import packing_lines
from meshwright.report.shares import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.data.dry import Projection
    from meshwright.data.shards.manifest import Manifest
    from meshwright.report.page import Block

_STEPS = (
    Column(key="step", title="step"),
    Column(key="in", title="documents in", align="right"),
    Column(key="out", title="out", align="right"),
    Column(key="size", title="text out", align="right"),
    Column(key="seconds", title="CPU, all workers", align="right"),
    Column(key="rate", title="per CPU", align="right"),
)
_STAGES = (
    Column(key="stage", title="stage"),
    Column(key="units", title="units", align="right"),
    Column(key="found", title="found done", align="right"),
    Column(key="seconds", title="wall time", align="right"),
    Column(key="cpu", title="CPU, all workers", align="right"),
)
_SHARES = (
    Column(key="reason", title="would be dropped because"),
    Column(key="share", title="share", align="right"),
)
_DROPPED = (
    Column(key="reason", title="dropped because"),
    Column(key="documents", title="documents", align="right"),
    Column(key="share", title="share", align="right"),
)


def summary_record(folder: str, manifest: Manifest, *, built: bool = True) -> dict[str, Any]:
    """The same as the page, for machines: counts, shards, and the record of the run."""
    from meshwright.data.finished import read_record

    record = dict(read_record(Path(folder)))
    return {
        "folder": folder,
        "built": built,  # in this run, not found finished
        "counts": dict(manifest.counts),
        "shards": [
            {name: getattr(shard, name) for name in ("name", "documents", "tokens", "rows")}
            for shard in manifest.shards
        ],
        "run": record,
    }


def projection_record(found: Projection) -> dict[str, Any]:
    """A dry run for machines."""
    return asdict(found)


def projection_page(found: Projection, *, workers: int) -> list[Block]:
    """What a sample says of a whole build."""
    gone = sorted(((share, reason) for reason, share in found.dropped.items()), reverse=True)
    rows = [{"reason": reason, "share": percent(share)} for share, reason in gone]
    shares: list[Block] = [table_of(_SHARES, rows), ""] if rows else []
    seconds = found.seconds(workers)
    what = "all of the input" if found.is_all else "a sample of the input"
    about = "" if found.is_all else "about "
    page: list[Block] = [
        f"tried on {what}: {plural(found.sample_documents, 'document')}, "
        f"{format_bytes(found.sample_bytes)} of text",
        *_bad_lines(found),
        "",
        *shares,
        f"input: {plural(found.inputs, 'file')}, {format_bytes(found.stored_bytes)} stored, {about}"
        f"{format_count(found.documents)} documents, {format_bytes(found.text_bytes)} of text",
        f"kept: {about}{percent(found.kept)} of the documents",
        *_projected_tokens(found, about),
        f"time: about {format_duration(seconds)} with {plural(workers, 'worker')}, of which "
        f"{format_duration(found.start_s)} to start each; "
        f"{format_duration(found.cpu_seconds)} of CPU beyond that",
        f"disk: about {format_bytes(found.work_bytes)} at the most, "
        f"{format_bytes(found.output_bytes)} of it for the output",
    ]
    if not found.is_all:
        page.append("duplicates were sought within the sample alone: a build will find more")
    return page


def _bad_lines(found: Projection) -> Iterator[str]:
    """What of the sample could not be read."""
    if found.rejected:
        yield f"{plural(found.rejected, 'line')} of it cannot be read"
    if found.refused:
        more = f" and {plural(len(found.refused) - 1, 'more file')}" if found.refused[1:] else ""
        yield (
            f"a build would stop: more of {harmless(found.refused[0])}{more} cannot be read than "
            "limits.bad_fraction allows"
        )


def _projected_tokens(found: Projection, about: str) -> Iterator[str]:
    """Tokens of the output, by source where there are several."""
    if found.tokens is None:
        yield "tokens: none, for want of a tokenizer: the output is cleaned text"
        return
    yield f"tokens: {about}{format_count(found.tokens)} in the output"
    for source in found.sources if len(found.sources) > 1 else ():
        share = percent(source.used_tokens / max(1, found.tokens))
        yield (
            f"  {harmless(source.name)}: {about}{format_count(source.used_tokens)} ({share}), of "
            f"{format_count(source.tokens)} that it has"
        )


def summary_page(folder: str, manifest: Manifest, *, built: bool = True) -> list[Block]:
    """Steps and stages, where the folder was `built` just now; reasons, tokens and files."""
    from meshwright.data.finished import read_record

    record = read_record(Path(folder)) if built else {}
    return [*_run(record), *_reasons(manifest), *_output(folder, manifest)]


def _run(record: Mapping[str, Any]) -> Iterator[Block]:
    """What the steps of the scan and the stages took."""
    steps = [_step(name, counts) for name, counts in record.get("steps", {}).items()]
    if steps:
        yield table_of(_STEPS, steps)
        yield ""
    stages = [_stage(name, facts) for name, facts in record.get("stages", {}).items()]
    if stages:
        yield table_of(_STAGES, [stage for stage in stages if stage["units"] != "0"])
        yield ""
    rejected = record.get("rejected", {})
    if rejected:
        count = sum(rejected.values())
        lines, files = plural(count, "line"), plural(len(rejected), "file")
        yield f"{lines} of {files} could not be read: rejected.jsonl"
        yield ""


def _step(name: str, counts: Mapping[str, Any]) -> dict[str, str]:
    seconds = counts["seconds"]
    return {
        "step": name,
        "in": f"{counts['documents_in']:,}",
        "out": f"{counts['documents_out']:,}",
        "size": format_bytes(counts["bytes_out"]),
        "seconds": format_duration(seconds),
        "rate": format_rate(counts["bytes_in"] / seconds) if seconds else "",
    }


def _stage(name: str, facts: Mapping[str, Any]) -> dict[str, str]:
    return {
        "stage": name,
        "units": f"{facts['units']:,}",
        "found": f"{facts['found']:,}" if facts["found"] else "",
        "seconds": format_duration(facts["seconds"]),
        "cpu": format_duration(facts["cpu_seconds"]),
    }


def _reasons(manifest: Manifest) -> Iterator[Block]:
    """How many documents were kept, and why the others were not."""
    total = sum(manifest.counts.values())
    kept = manifest.counts.get("", 0)
    gone = sorted((-count, reason) for reason, count in manifest.counts.items() if reason)
    rows = [
        {"reason": reason, "documents": f"{-count:,}", "share": percent(-count / total)}
        for count, reason in gone
        if count
    ]
    if rows:
        yield table_of(_DROPPED, rows)
        yield ""
    share = f" ({percent(kept / total)})" if total else ""
    yield f"{kept:,} of {plural(total, 'document')} kept{share}"
    yield from repair_lines(manifest)


def _output(folder: str, manifest: Manifest) -> Iterator[Block]:
    """Tokens, rows and files."""
    size = sum(file.bytes for file in manifest.files.values())
    packed = manifest.packed
    if packed is not None:
        rows = sum(shard.rows for shard in manifest.shards)
        tokens = sum(shard.tokens for shard in manifest.shards)
        fill = tokens / (rows * packed.seq_len) if rows else 0.0
        yield (
            f"{format_count(tokens)} tokens in {plural(rows, 'row')} of {packed.seq_len:,} "
            f"({packed.strategy}, {fill:.2%} full), {plural(len(manifest.shards), 'shard')}"
        )
        yield from packing_lines(manifest)
        yield from mixture_lines(manifest)
    else:
        yield "no tokens: no tokenizer was named (--tokenizer), so the output is the cleaned text"
    yield f"{plural(len(manifest.files), 'file')}, {format_bytes(size)}, in {folder}"
