"""Near duplicates by other programs, one of them a run.

    python near_dedup.py rensa | datasketch | datatrove INPUT.jsonl SCRATCH_FOLDER OUTPUT.json

Reads documents (fields id, text; the id is the line's number from 0) and writes the numbers of
those that go, the pairs of which it says so where it tells, and the CPU seconds of its imports.
rensa and datasketch get word shingles made in Python and their own LSH with 20 bands of 6 rows, of
which the later one of two candidates goes; datatrove runs its four MinHash stages with its own
defaults (14 bands of 8 rows).
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

BANDS, ROWS, SHINGLE_WORDS, BATCH = 20, 6, 5, 500
WORD = re.compile(r"[^\W_]+")
Found = tuple[list[int], list[tuple[int, int]], float]


def shingles(text: str) -> set[str]:
    """The runs of five words; all words of a text that has fewer."""
    words = WORD.findall(text.lower())
    if len(words) < SHINGLE_WORDS:
        return {" ".join(words)} if words else set()
    return {" ".join(words[i : i + SHINGLE_WORDS]) for i in range(len(words) - SHINGLE_WORDS + 1)}


def batches(path: Path) -> Iterator[list[set[str]]]:
    """The sets of all documents, some hundreds at a time."""
    batch: list[set[str]] = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            batch.append(shingles(json.loads(line)["text"]))
            if len(batch) == BATCH:
                yield batch
                batch = []
    yield batch


def later(candidates: Iterator[tuple[int, list[int]]]) -> tuple[list[int], list[tuple[int, int]]]:
    """Documents with an earlier candidate, and these pairs."""
    pairs = [(number, of) for number, found in candidates for of in sorted(found) if of < number]
    return sorted({number for number, _ in pairs}), pairs


def rensa(path: Path, _scratch: Path) -> Found:
    """R-MinHash in batches, all inserted and then queried."""
    start = time.process_time()
    from rensa import RMinHash, RMinHashLSH

    imports_s = time.process_time() - start
    lsh = RMinHashLSH(threshold=0.8, num_perm=BANDS * ROWS, num_bands=BANDS)
    hashed: list[Any] = []
    for batch in batches(path):
        hashed += RMinHash.from_token_sets(batch, num_perm=BANDS * ROWS, seed=42)
    lsh.insert_many(hashed)
    return (*later(enumerate(lsh.query_all(hashed))), imports_s)


def datasketch(path: Path, _scratch: Path) -> Found:
    """MinHash of independent permutations, in bulk."""
    start = time.process_time()
    from datasketch import MinHash, MinHashLSH

    imports_s = time.process_time() - start
    lsh = MinHashLSH(num_perm=BANDS * ROWS, params=(BANDS, ROWS))
    found: list[tuple[int, list[int]]] = []
    for batch in batches(path):
        encoded = [[shingle.encode() for shingle in one] for one in batch]
        for sketch in MinHash.bulk(encoded, num_perm=BANDS * ROWS):
            found.append((len(found), lsh.query(sketch)))
            lsh.insert(len(found) - 1, sketch, check_duplication=False)
    return (*later(iter(found)), imports_s)


def datatrove(path: Path, scratch: Path) -> Found:
    """Signatures, buckets, clusters and the filter, in one process."""
    logging.disable(logging.CRITICAL)
    start = time.process_time()
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter
    from loguru import logger

    logger.remove()
    imports_s = time.process_time() - start
    config = MinhashConfig()
    at = {name: str(scratch / name) for name in ("signatures", "buckets", "remove", "kept")}

    def reader() -> JsonlReader:
        return JsonlReader(str(path.parent), glob_pattern=path.name)

    run([reader(), MinhashDedupSignature(at["signatures"], config=config)])
    for bucket in range(config.num_buckets):
        step = MinhashDedupBuckets(at["signatures"], at["buckets"], config=config)
        run([step], rank=bucket, world=config.num_buckets)
    run([MinhashDedupCluster(at["buckets"], at["remove"], config=config)])
    run([reader(), MinhashDedupFilter(at["remove"]), JsonlWriter(at["kept"], compression=None)])
    kept = {
        int(json.loads(line)["id"])
        for part in Path(at["kept"]).glob("*.jsonl")
        for line in part.open(encoding="utf-8")
    }
    with path.open("rb") as file:
        return [n for n, _ in enumerate(file) if n not in kept], [], imports_s


def run(pipeline: list[Any], *, rank: int = 0, world: int = 1) -> None:
    """One task of a pipeline of datatrove."""
    data: Any = None
    for step in pipeline:
        data = step(data, rank, world)
    for _ in data or ():
        pass


def main() -> int:
    tool, path, scratch, out = sys.argv[1], *map(Path, sys.argv[2:5])
    dropped, pairs, imports_s = globals()[tool](path, scratch)
    found = {"dropped": dropped, "pairs": pairs, "imports_s": imports_s}
    out.write_text(json.dumps(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
