"""Padding and cut documents of the packing strategies, on the lengths of a real corpus.

    python benchmarks/data_packing.py [--quick] [--json] [--corpus FOLDER]

The corpus becomes GPT-2 tokens as `meshwright data build` makes them (exact duplicates dropped),
and each strategy packs the same lengths into rows of 512 to 8192 tokens. `cut` is the share of
documents that lie in more than one row; those longer than a row (`longer`) must be cut by any.
Best-fit is timed beside the rows that the tokens alone would need.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_chain import gpt2

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEQ_LENS = (512, 2048, 4096, 8192)
TARGETS = {"padding": 0.001, "cut_ratio": 1 / 3}  # of best-fit at 4096


def lengths_of(corpus: Path, scratch: Path) -> NDArray[np.int32]:
    """Tokens of each document, its end included."""
    from meshwright.data.shards.indexed import open_indexed

    files = [str(path) for path in sorted(corpus.glob("part-*.jsonl"))]
    folder = scratch / "shards"
    command = [sys.executable, "-m", "meshwright", "data", "build", *files, "--quiet"]
    command += ["--tokenizer", str(gpt2(scratch)), "-o", str(folder), "--pack", "concatenate"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shards = sorted(folder.glob("*.idx"))
    return np.concatenate([open_indexed(path.with_suffix("")).lengths for path in shards])


def packed(lengths: NDArray[np.int32], seq_len: int) -> dict[str, Any]:
    """Each strategy on these lengths, and the CPU seconds of best-fit."""
    from meshwright.data.pack.strategy import fills, pack

    start = time.process_time()
    rows = len(pack(lengths, seq_len, strategy="best-fit"))
    best_fit_s = time.process_time() - start
    found: dict[str, Any] = {"best_fit_s": best_fit_s}
    found["rows"] = rows
    found["fewest_rows"] = math.ceil(int(lengths.sum(dtype=np.int64)) / seq_len)
    found["longer"] = float((lengths > seq_len).mean())
    for name, fill in fills(lengths, seq_len).items():
        padding = fill.padding / (fill.padding + fill.tokens)
        found[name] = {"padding": padding, "cut": fill.cut / len(lengths)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a corpus of 12 MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", type=Path, help="a folder of part-*.jsonl; else collected")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        corpus = chosen.corpus or Path(name) / "corpus"
        if chosen.corpus is None:
            from corpus import collect

            collect(corpus, mb=12.0 if chosen.quick else 220.0, part_mb=20.0)
        lengths = lengths_of(corpus, Path(name))
    found: dict[str, Any] = {"documents": len(lengths), "tokens": int(lengths.sum(dtype=np.int64))}
    found |= {str(seq_len): packed(lengths, seq_len) for seq_len in SEQ_LENS}
    best, concatenated = found["4096"]["best-fit"], found["4096"]["concatenate"]
    reached = best["padding"] < TARGETS["padding"]
    reached = reached and best["cut"] <= concatenated["cut"] * TARGETS["cut_ratio"]
    print(json.dumps(found | {"reached": reached}, indent=1) if chosen.json else report(found))
    return 0 if reached else 1


def report(found: dict[str, Any]) -> str:
    """The figures as a table."""
    lines = [f"{found['documents']:,} documents, {found['tokens']:,} tokens"]
    lines.append("seq_len  strategy     padding %  cut %     rows  fewest   best-fit CPU s")
    for seq_len in SEQ_LENS:
        row = found[str(seq_len)]
        for name in ("concatenate", "best-fit", "padded"):
            fill = row[name]
            shares = f"{100 * fill['padding']:>9.3f}  {100 * fill['cut']:>5.1f}"
            line = f"{seq_len:>7}  {name:<11}  {shares}"
            if name == "best-fit":
                line += f"  {row['rows']:>7,} {row['fewest_rows']:>7,}   {row['best_fit_s']:.3f}"
            lines.append(line)
    best, concatenated = found["4096"]["best-fit"], found["4096"]["concatenate"]
    ratio, longer = best["cut"] / concatenated["cut"], found["4096"]["longer"]
    lines.append(
        f"at 4096 best-fit cuts {ratio:.2f} of what concatenation cuts; {100 * longer:.1f}% are "
        f"longer than a row, {longer / concatenated['cut']:.2f} of it"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
