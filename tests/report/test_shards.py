"""Pages about shards: what a manifest says never steers the terminal."""

from __future__ import annotations

from io import StringIO

from meshwright.data.shards.manifest import Manifest, Packed, SourceRecord, StrategyRecord
from meshwright.data.shards.origin import Origin
from meshwright.data.shards.show import Located
from meshwright.data.shards.stats import Stats
from meshwright.report.page import show
from meshwright.report.shards import origin_page, packing_lines, stats_page

STEERING = "\x1b]0;mine\x07"


def test_names_in_a_manifest_are_spelled_out() -> None:
    source = SourceRecord(
        name=STEERING,
        weight=None,
        documents=1,
        tokens=1,
        text_bytes=1,
        train_documents=1,
        train_tokens=1,
        valid_documents=0,
        valid_tokens=0,
    )
    manifest = Manifest(
        tool="test",
        counts={"": 1, STEERING: 2},
        packed=Packed(seq_len=8, strategy=STEERING, layout="rows"),
        strategies={STEERING: StrategyRecord(rows=1, padding=0, cut=0)},
        sources=[source],
        masked={STEERING: 1},
    )
    shown = StringIO()
    show(stats_page("shards", Stats(manifest=manifest, splits=(), files=0, bytes=0)), shown)
    shown.write("\n".join(packing_lines(manifest)))
    assert "\x1b" not in shown.getvalue()
    assert shown.getvalue().count("\\x1b]0;mine") == 4


def test_the_fate_of_a_document_is_spelled_out() -> None:
    nothing = dict.fromkeys(("measured", "test_text", "duplicate_of_input", "duplicate_of_line"))
    nothing |= dict.fromkeys(("similarity", "shard", "document", "tokens"))
    origin = Origin(
        input="a", line=1, id="", bytes=1, language="", reason=STEERING, copies=0, **nothing
    )
    assert "\x1b" not in "".join(map(str, origin_page("out", Located(origin=origin, why=STEERING))))
