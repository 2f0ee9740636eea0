"""Tables of `data stats` stay below 100 columns for as much data as there is."""

from __future__ import annotations

from meshwright.base.table import Table
from meshwright.data.reasons import REASONS
from meshwright.data.shards.manifest import (
    Example,
    Manifest,
    Packed,
    ShardRecord,
    SourceRecord,
    StrategyRecord,
    Vocabulary,
)
from meshwright.data.shards.stats import SplitStats, Stats
from meshwright.report.build import summary_page
from meshwright.report.shards import stats_page

MANY = 987_654_321_987_654


def stats() -> Stats:
    source = SourceRecord(
        name="common-crawl",
        weight=0.125,
        documents=MANY,
        tokens=MANY,
        text_bytes=MANY,
        train_documents=MANY,
        train_tokens=MANY - 10,
        valid_documents=10,
        valid_tokens=10,
    )
    shard = ShardRecord(
        name="train-00000",
        split="train",
        documents=MANY,
        tokens=MANY,
        rows=MANY // 4096,
        pieces=MANY,
        cost=MANY,
        largest_cost=MANY,
    )
    manifest = Manifest(
        tool="t",
        counts=dict.fromkeys(REASONS, MANY),
        vocabulary=Vocabulary(digest="d", vocab_size=10, eod_id=0, pad_id=0, dtype="<i4"),
        packed=Packed(seq_len=4096, strategy="concatenate", layout="documents"),
        strategies={
            name: StrategyRecord(rows=MANY, padding=MANY, cut=MANY)
            for name in ("concatenate", "best-fit", "padded")
        },
        sources=[source],
        shards=[shard],
        examples={
            reason: [Example(file=f"raw/{'x' * 30}.jsonl", line=7, excerpt="words " * 30)]
            for reason in REASONS
            if reason
        },
    )
    split = SplitStats(
        split="train",
        shards=1,
        documents=MANY,
        tokens=MANY,
        rows=MANY // 4096,
        padding=MANY,
        cut=MANY // 3,
        mean_cost=4.0,
        largest_cost=MANY,
        lengths=None,
    )
    return Stats(manifest=manifest, splits=(split,), files=1, bytes=MANY)


def width(table: Table) -> int:
    return sum(table.widths()) + 2 * (len(table.columns) - 1)


def test_tables_of_stats() -> None:
    page = stats_page("shards", stats())
    tables = [block for block in page if isinstance(block, Table)]
    assert len(tables) == 4
    assert max(map(width, tables)) <= 100
    examples = [line for line in page if isinstance(line, str) and line.startswith("  empty")]
    assert len(examples) == 1
    assert examples[0].endswith("...")
    assert len(examples[0]) <= 100


def test_every_reason_is_in_the_summary(tmp_path) -> None:
    page = summary_page(str(tmp_path), stats().manifest)
    tables = [block for block in page if isinstance(block, Table)]
    assert [len(table.rows) for table in tables] == [len(REASONS) - 1]
    assert max(map(width, tables)) <= 100
