"""Near duplicates: ours beside rensa, datasketch and datatrove on planted pairs in real text.

    python benchmarks/near_dedup.py [--quick] [--json] [--corpus FOLDER] [--mb MB]
                                    [--peer-python PYTHON]

The documents are those of the corpus, and short ones (20 to 60 words) cut from them. Copies of some
are planted later on, changed by substituted words, an inserted head, a cut tail, other case and
spacing, so that their exact Jaccard similarity J (5-word shingles made in plain Python) is spread
over 0.8 to 1, for some over 0.6 to 0.8.

CPU seconds are those of a process of its own with all that it starts, from the jsonl to the list of
what goes; imports are taken off. Ours runs the stages of a build as far as that list, with all they
write on the way. Recall: of the planted pairs of J >= 0.8, those not both kept. Precision: of the
documents that go, those with J >= 0.8 to another one that any program found.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from peers.near_dedup import WORD, shingles
from spent import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TARGETS = {"rensa_ratio": 2.0, "datatrove_ratio": 40.0, "recall": 0.99, "precision": 0.99}
PEER = Path(__file__).parent / "peers" / "near_dedup.py"
PEERS = ("rensa", "datasketch", "datatrove")
SAMPLE = 2000  # documents of each program whose precision is looked at
STAGES = """
import json, sys, time
start = time.process_time()
from pathlib import Path
import numpy, orjson, xxhash, zstandard
from meshwright.data.building import plan_job
from meshwright.data.settings import Build, Dedup, Output, Source
from meshwright.data.stages.decide import dropped_of
from meshwright.data.stages.plan import stages_of
imports_s = time.process_time() - start

source, folder, out = sys.argv[1:]
sources, near = (Source(files=(source,)),), Dedup(exact=True, near=True)
job = plan_job(Build(sources=sources, output=Output(folder=folder), dedup=near))
for stage in stages_of(job):
    for number in stage.units(job):
        stage.make(job, number)

numbers = []  # of the survivors of each unit
first = 0
for unit in job.units:
    rows = job.store.column("scan", unit.number, "survivors")["row"]
    numbers.append((first + rows).tolist())
    first += len(job.store.column("scan", unit.number, "documents"))
pairs = [
    (numbers[unit][survivor], numbers[of_unit][of])
    for one in job.units
    for unit, survivor, _, of_unit, of, _ in dropped_of(job, one.number).tolist()
]
found = {"dropped": [number for number, _ in pairs], "pairs": pairs, "imports_s": imports_s}
Path(out).write_text(json.dumps(found))
"""


class Planted(NamedTuple):
    """A document and a changed copy of it, by number, and their similarity."""

    first: int
    second: int
    similarity: float
    is_short: bool


def jaccard(one: set[str], other: set[str]) -> float:
    """The exact similarity of two sets."""
    return len(one & other) / max(1, len(one | other))


def changed(text: str, target: float, draw: random.Random) -> str:
    """A copy whose similarity is about `target`."""
    spans = [match.span() for match in WORD.finditer(text)]
    kind, count = draw.randrange(4), len(spans)
    if kind == 0 and target > 0.9:
        return text.upper().replace(" ", "  ")
    if kind == 1:
        head = max(1, round(count * (1 / target - 1)))
        return " ".join(f"head{draw.randrange(10**6)}" for _ in range(head)) + "\n" + text
    if kind == 2:
        return text[: spans[min(count - 1, max(0, round(count * target)))][1]]
    edits = max(1, round(count * (1 - target) / (5 * (1 + target))))
    for place in sorted(draw.sample(range(count), min(edits, count)), reverse=True):
        start, stop = spans[place]
        text = f"{text[:start]}other{draw.randrange(10**6)}{text[stop:]}"
    return text


def cut_short(text: str, draw: random.Random) -> str:
    """20 to 60 words in a row."""
    spans = [match.span() for match in WORD.finditer(text)]
    count = draw.randrange(20, 61)
    first = draw.randrange(max(1, len(spans) - count))
    return text[spans[first][0] : spans[min(first + count, len(spans)) - 1][1]]


def read(path: Path) -> Iterator[str]:
    """The texts of a file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)["text"]


def texts_of(corpus: Path, mb: float) -> Iterator[str]:
    """The first `mb` MB of the corpus, of documents of at least 60 words."""
    room = mb * 1e6
    for part in sorted(corpus.glob("part-*.jsonl")):
        for text in read(part):
            if len(WORD.findall(text[:2000])) >= 60:
                room -= len(text.encode())
                yield text
            if room <= 0:
                return


def plant(corpus: Path, path: Path, *, mb: float) -> list[Planted]:
    """Writes the documents with their planted copies; the pairs."""
    draw, rows = random.Random(7), []
    for number, text in enumerate(texts_of(corpus, mb)):
        for short in (False, True):
            own = cut_short(text, draw) if short else text
            place = draw.random()
            rows.append((place, (number, short, 0), own))
            if draw.random() < (0.6 if short else 0.3):
                low, high = (0.8, 1.0) if draw.random() < 0.85 else (0.6, 0.8)
                copy = changed(own, draw.uniform(low, high), draw)
                rows.append((draw.uniform(place, 1), (number, short, 1), copy))
    rows.sort()
    at: dict[tuple[int, bool, int], tuple[int, str]] = {}
    with path.open("w", encoding="utf-8") as out:
        for number, (_, name, text) in enumerate(rows):
            out.write(json.dumps({"id": str(number), "text": text}) + "\n")
            at[name] = (number, text)
    return [
        Planted(at[name[0], name[1], 0][0], number, jaccard(*map(shingles, texts)), name[1])
        for name, (number, copy) in at.items()
        if name[2]
        for texts in [(at[name[0], name[1], 0][1], copy)]
    ]


def run_reporting(command: list[str], out: Path) -> dict[str, Any]:
    """CPU seconds of a command and all it starts, its imports taken off, and what it found."""
    cpu_s = run(command).cpu_s
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found | {"cpu_s": cpu_s - found["imports_s"]}


def programs(path: Path, scratch: Path, python: str) -> dict[str, dict[str, Any]]:
    """What ours and each peer that is installed found."""
    found = {}
    for name in ("ours", *PEERS):
        out, folder = scratch / f"{name}.json", scratch / name
        if name == "ours":
            command = [sys.executable, "-c", STAGES, str(path), str(folder), str(out)]
        else:
            command = [python, str(PEER), name, str(path), str(folder), str(out)]
            if subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode:
                found[name] = {"error": f"{name} is not installed"}
                continue
        try:
            found[name] = run_reporting(command, out)
        except RuntimeError as error:
            if name == "ours":
                raise
            found[name] = {"error": str(error)}
    return found


def recall(planted: Iterable[Planted], dropped: set[int]) -> float | None:
    """Of planted pairs, the share not both kept; None without any."""
    hits = [bool({pair.first, pair.second} & dropped) for pair in planted]
    return sum(hits) / len(hits) if hits else None


def precision(
    path: Path, found: dict[str, dict[str, Any]], planted: Iterable[Planted]
) -> dict[str, float]:
    """Of a sample of the documents that each program drops, the share that repeats another."""
    sets = [shingles(text) for text in read(path)]
    known: dict[int, set[int]] = {}
    told = [pair for one in found.values() for pair in one.get("pairs", ())]
    for one, other in [*told, *((pair.first, pair.second) for pair in planted)]:
        known.setdefault(one, set()).add(other)
        known.setdefault(other, set()).add(one)
    draw, shares = random.Random(1), {}
    for name, one in found.items():
        if not one.get("dropped"):
            continue
        sample = draw.sample(one["dropped"], min(SAMPLE, len(one["dropped"])))
        hits = [
            any(jaccard(sets[number], sets[other]) >= 0.8 for other in known.get(number, ()))
            for number in sample
        ]
        shares[name] = sum(hits) / len(hits)
    return shares


def measure(corpus: Path, scratch: Path, *, mb: float, python: str) -> dict[str, Any]:
    """All figures of this file."""
    path = scratch / "in" / "planted.jsonl"
    path.parent.mkdir()
    planted = plant(corpus, path, mb=mb)
    found = programs(path, scratch, python)
    shares, size_mb = precision(path, found, planted), path.stat().st_size / 1e6
    rows: dict[str, Any] = {}
    for name, one in found.items():
        if "error" in one:
            rows[name] = one
            continue
        dropped = set(one["dropped"])
        high = [pair for pair in planted if pair.similarity >= 0.8]
        rows[name] = {
            "cpu_s": one["cpu_s"],
            "mb_per_cpu_s": size_mb / one["cpu_s"],
            "ratio": one["cpu_s"] / found["ours"]["cpu_s"],
            "dropped": len(dropped),
            "recall": recall(high, dropped),
            "recall_short": recall((pair for pair in high if pair.is_short), dropped),
            "recall_0.8_to_0.85": recall((p for p in high if p.similarity < 0.85), dropped),
            "recall_below_0.8": recall((p for p in planted if p.similarity < 0.8), dropped),
            "precision": shares.get(name),
        }
    documents = sum(1 for _ in read(path))
    pairs = sum(pair.similarity >= 0.8 for pair in planted)
    return {"mb": size_mb, "documents": documents, "pairs": pairs, "programs": rows}


def failures(found: dict[str, Any]) -> list[str]:
    """The targets that were missed; a peer that is not there misses none."""
    rows = found["programs"]
    missed = [
        f"{name}: {rows['ours'][name]:.4f}"
        for name in ("recall", "precision")
        if rows["ours"][name] < TARGETS[name]
    ]
    for name in ("rensa", "datatrove"):
        ratio = rows.get(name, {}).get("ratio")
        if ratio is not None and ratio < TARGETS[f"{name}_ratio"]:
            missed.append(f"{name}: {ratio:.1f}x")
    return missed


def lines(found: dict[str, Any]) -> list[str]:
    """The figures as text."""
    text = [
        f"{found['documents']} documents, {found['mb']:.1f} MB, {found['pairs']} planted pairs of "
        "J >= 0.8",
        f"{'':10} {'CPU s':>8} {'MB/CPU s':>9} {'ratio':>6} {'recall':>8} {'short':>8} "
        f"{'precision':>9}",
    ]
    for name, row in found["programs"].items():
        if "error" in row:
            text.append(f"{name:10} {row['error'].strip().splitlines()[-1]}")
            continue
        shares = [f"{row[key]:8.4f}" for key in ("recall", "recall_short", "precision")]
        text.append(
            f"{name:10} {row['cpu_s']:8.2f} {row['mb_per_cpu_s']:9.1f} {row['ratio']:6.1f} "
            + " ".join(shares)
        )
    return text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="10 MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", type=Path, help="a folder of part-*.jsonl; else collected")
    parser.add_argument("--mb", type=float, help="of the corpus; 40 by default")
    parser.add_argument("--peer-python", default=sys.executable, help="where the peers are")
    chosen = parser.parse_args()
    mb = chosen.mb or (10.0 if chosen.quick else 40.0)
    with tempfile.TemporaryDirectory() as name:
        scratch, corpus = Path(name), chosen.corpus
        if corpus is None:
            from corpus import collect

            corpus = scratch / "corpus"
            collect(corpus, mb=mb * 1.2, part_mb=20.0)
        found = measure(corpus, scratch, mb=mb, python=chosen.peer_python)
    missed = failures(found)
    if chosen.json:
        print(json.dumps(found | {"missed": missed}, indent=1))
    else:
        print("\n".join([*lines(found), *(f"missed: {text}" for text in missed)]))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
