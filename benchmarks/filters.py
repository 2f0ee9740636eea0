"""The Gopher, C4 and FineWeb filters beside datatrove's: speed, and how often both decide alike.

    python benchmarks/filters.py [--quick] [--json] [--corpus FILE.jsonl] [--mb MB]
                                 [--peer-python PYTHON]

Each filter judges every document by itself with its defaults. CPU seconds are those of one thread,
from the texts in memory to the reasons: ours include the table of words, datatrove's the words
(spaCy's) that each of its filters splits. Agreement is the share of documents that both keep or
both drop; beside it the commonest reasons of those that one alone drops. The filters are made for
prose: on source code and HTML the splitter of words decides, as it makes words of punctuation.

Exit status 1 when a filter is less than 20 times as fast, or all of ours together run below 12 MB
a CPU second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.data.documents import BATCH_BYTES, documents_of
from meshwright.data.filters import apply
from meshwright.data.settings import (
    C4,
    Build,
    FineWeb,
    GopherQuality,
    GopherRepetition,
    Output,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.data.documents import Documents

PEER = Path(__file__).parent / "peers" / "datatrove_filters.py"
DEFAULTS = {
    "gopher_quality": GopherQuality(),
    "gopher_repetition": GopherRepetition(),
    "c4": C4(),
    "fineweb": FineWeb(),
}
TARGETS = {"ratio": 20.0, "mb_per_cpu_s": 12.0}


def texts_of(corpus: Path, limit_bytes: float) -> list[str]:
    """The first documents of the corpus."""
    texts, size = [], 0
    with corpus.open(encoding="utf-8") as file:
        for line in file:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1].encode())
            if size >= limit_bytes:
                break
    return texts


def batches(texts: list[str]) -> Iterator[Documents]:
    """The texts in batches as a build makes them."""
    batch: list[bytes] = []
    size = 0
    for text in texts:
        batch.append(text.encode())
        size += len(batch[-1])
        if size >= BATCH_BYTES:
            yield documents_of(batch)
            batch, size = [], 0
    yield documents_of(batch)


def ours(texts: list[str], names: tuple[str, ...]) -> dict[str, Any]:
    """The first reason of each document by these filters; the CPU seconds, best of three."""
    build = Build(sources=(), output=Output(folder=""), **{name: DEFAULTS[name] for name in names})
    made = list(batches(texts))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        verdicts = [(len(batch), apply(batch, build)[1]) for batch in made]
        seconds.append(time.process_time() - start)
    reasons: list[str] = []
    for count, verdict in verdicts:
        found = [""] * count
        for reason, mask in reversed(verdict.items()):
            for index in mask.nonzero()[0].tolist():
                found[index] = reason
        reasons += found
    return {"reasons": reasons, "cpu_s": min(seconds)}


def theirs(texts: list[str], python: str) -> dict[str, Any]:
    """The same by datatrove, for each filter."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "in.jsonl"), Path(folder, "out.json")
        source.write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
        subprocess.run([python, str(PEER), str(source), str(output)], check=True)
        found: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    return found


def compared(name: str, mine: dict[str, Any], other: dict[str, Any], mb: float) -> dict[str, Any]:
    """Speed and agreement of one filter."""
    pairs = list(zip(mine["reasons"], other["reasons"], strict=True))
    return {
        "filter": name,
        "mb_per_cpu_s": mb / mine["cpu_s"],
        "datatrove_mb_per_cpu_s": mb / other["cpu_s"],
        "ratio": other["cpu_s"] / mine["cpu_s"],
        "dropped": sum(bool(a) for a, _ in pairs) / len(pairs),
        "datatrove_dropped": sum(bool(b) for _, b in pairs) / len(pairs),
        "agreement": sum(bool(a) == bool(b) for a, b in pairs) / len(pairs),
        "only_ours": dict(Counter(a for a, b in pairs if a and not b).most_common(3)),
        "only_datatrove": dict(Counter(b for a, b in pairs if b and not a).most_common(3)),
    }


def shown(found: dict[str, Any]) -> None:
    """The figures for a reader."""
    print(f"{found['documents']:,} documents, {found['mb']:.1f} MB")
    for row in found["filters"]:
        print(
            f"{row['filter']:18} {row['mb_per_cpu_s']:7.1f} MB/CPU-s, datatrove "
            f"{row['datatrove_mb_per_cpu_s']:.2f} ({row['ratio']:.0f}x); drops {row['dropped']:.1%}"
            f" and {row['datatrove_dropped']:.1%}, agree on {row['agreement']:.1%}"
        )
        print(f"{'':18} only ours {row['only_ours']}; only datatrove {row['only_datatrove']}")
    print(f"all together       {found['all_mb_per_cpu_s']:7.1f} MB/CPU-s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="1.5 MB instead of --mb")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", type=Path, required=True, help="a jsonl file with `text`")
    parser.add_argument("--mb", type=float, default=8.0)
    parser.add_argument("--peer-python", default=sys.executable, help="has datatrove and spacy")
    chosen = parser.parse_args()
    texts = texts_of(chosen.corpus, 1e6 * (1.5 if chosen.quick else chosen.mb))
    mb = sum(len(text.encode()) for text in texts) / 1e6
    other = theirs(texts, chosen.peer_python)
    rows = [compared(name, ours(texts, (name,)), other[name], mb) for name in DEFAULTS]
    together = mb / ours(texts, tuple(DEFAULTS))["cpu_s"]
    found = {"documents": len(texts), "mb": mb, "filters": rows, "all_mb_per_cpu_s": together}
    if chosen.json:
        print(json.dumps(found))
    else:
        shown(found)
    reached = all(row["ratio"] >= TARGETS["ratio"] for row in rows)
    return 0 if reached and together >= TARGETS["mb_per_cpu_s"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
