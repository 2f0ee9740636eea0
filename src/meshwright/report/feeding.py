"""The answer of `meshwright data plan`: what a run needs of its data and its storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.table import Column, Row, Table
from meshwright.base.units import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_rate,
)
from meshwright.report.headline import assumed_line, job_record, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.feeding import Corpus, DataPlan, Feed, Making, Saves
    from meshwright.report.page import Block

_COLUMNS = (
    Column(key="what", title="what"),
    Column(key="value", title="value", align="right"),
    Column(key="how", title="how"),
)
Line = tuple[str, str, str]


def feeding_page(found: DataPlan) -> list[Block]:
    """What was read and assumed, the figures, and what to type next."""
    lines = [
        *_corpus_lines(found),
        *(_making_lines(found.making) if found.making else ()),
        *(_feed_lines(found.feed) if found.feed else ()),
        *(_save_lines(found.saves) if found.saves else ()),
    ]
    rows = tuple(
        Row(cells=dict(zip(("what", "value", "how"), line, strict=True))) for line in lines
    )
    head: list[Block] = [read_line(found.job)] if found.job else []
    assumed = [assumed_line(found.assumptions)] if found.assumptions else []
    return [*head, *assumed, "", Table(columns=_COLUMNS, rows=rows), "", _next(found)]


def _next(found: DataPlan) -> str:
    corpus = found.corpus
    if corpus.folder:
        return f"next: meshwright data verify {corpus.folder}"
    if found.job is None:
        return "next: give --plan plan.toml for throughput, loader workers and checkpoints"
    build = f"meshwright data build raw/ --tokenizer tokenizer.json --seq-len {corpus.seq_len}"
    return f"next: {build} --shard-tokens {format_count(corpus.shard_tokens)} -o shards/"


def _corpus_lines(found: DataPlan) -> Iterator[Line]:
    corpus = found.corpus
    where = f"in {corpus.folder}" if corpus.folder else "planned"
    yield (
        "tokens",
        format_count(corpus.tokens),
        f"{where}; {corpus.vocab_size:,} ids, {corpus.token_bytes} bytes each",
    )
    if found.train_tokens != corpus.tokens:
        yield (
            "epochs",
            format_number(found.epochs),
            f"{format_count(found.train_tokens)} trained on",
        )
    yield "rows", format_count(corpus.rows), f"of {corpus.seq_len:,} tokens"
    yield (
        "token files",
        format_bytes(corpus.bin_bytes),
        f"{corpus.files:,} of {format_bytes(corpus.file_bytes)}, "
        f"shards of {format_count(corpus.shard_tokens)} tokens",
    )
    yield (
        "index files",
        format_bytes(corpus.index_bytes + corpus.plan_bytes),
        f".idx {format_bytes(corpus.index_bytes)} for {format_count(corpus.documents)} documents, "
        f"rows and pieces {format_bytes(corpus.plan_bytes)}",
    )


def _making_lines(making: Making) -> Iterator[Line]:
    yield (
        "build from text",
        f"{format_number(making.cpu_s / 3600)} core h",
        f"{format_bytes(making.text_bytes)} of text kept, {making.text_bytes_per_s / 1e6:g} MB/s a "
        f"core ({making.source}); what filters drop comes on top",
    )


def _feed_lines(feed: Feed) -> Iterator[Line]:
    yield (
        "throughput",
        f"{format_count(feed.tokens_per_s)} tokens/s",
        f"a step takes {format_duration(feed.step_s)}",
    )
    copies = f", on {feed.copies} nodes each" if feed.copies > 1 else ""
    yield (
        "read, all nodes",
        format_rate(feed.read_bytes_per_s),
        f"{format_rate(feed.used_bytes_per_s)} used, x {feed.amplification:.2f} for whole pages"
        f"{copies}",
    )
    supply = feed.supply_bytes_per_s
    yield (
        "read, a node",
        format_rate(feed.node_bytes_per_s),
        f"{feed.reading_nodes:,} nodes read"
        + (f"; storage gives {format_rate(supply)} to each" if supply else ""),
    )
    yield (
        "loader workers",
        f"{feed.workers} a rank",
        f"a replica reads {format_count(feed.rank_tokens_per_s)} tokens/s, a worker makes "
        f"{format_count(feed.worker_tokens_per_s)}",
    )
    yield (
        "host memory, a node",
        format_bytes(feed.reading_ranks * feed.batch_bytes + feed.mapped_bytes),
        f"batches {format_bytes(feed.batch_bytes)} a reading rank ({feed.reading_ranks} a node), "
        f"indexes in the page cache {format_bytes(feed.mapped_bytes)}",
    )


def _save_lines(saves: Saves) -> Iterator[Line]:
    yield (
        "checkpoint",
        format_bytes(saves.checkpoint_bytes),
        f"{format_duration(saves.stall_s)} of standstill, "
        f"{format_rate(saves.write_bytes_per_s_per_node)} a node",
    )
    stated = "stated" if saves.is_stated else "Young's optimum"
    yield (
        "a checkpoint every",
        format_duration(saves.interval_s),
        f"{stated}; a failure every {format_duration(saves.mtbf_s)}"
        + (f", optimum {format_duration(saves.optimum_s)}" if saves.is_stated else ""),
    )
    yield (
        "written, a day",
        format_bytes(saves.day_bytes),
        f"{format_rate(saves.mean_bytes_per_s_per_node)} a node on average",
    )
    yield (
        "lost to saves and failures",
        f"{100 * saves.lost_share:.2f}%",
        "of the time: saves, and work done again",
    )


def feeding_record(found: DataPlan) -> dict[str, Any]:
    """All of it for JSON."""
    from dataclasses import asdict

    from meshwright.report.findings import finding_record

    return {
        "job": job_record(found.job) if found.job else None,
        "train_tokens": found.train_tokens,
        "epochs": found.epochs,
        "corpus": _corpus_record(found.corpus),
        "build": asdict(found.making) if found.making else None,
        "reading": asdict(found.feed) if found.feed else None,
        "checkpoints": asdict(found.saves) if found.saves else None,
        "assumptions": list(found.assumptions),
        "findings": [finding_record(finding) for finding in found.findings],
    }


def _corpus_record(corpus: Corpus) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(corpus), "file_bytes": corpus.file_bytes}
