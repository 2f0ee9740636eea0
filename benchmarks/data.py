"""Everything that is claimed of `meshwright data`, measured in one run beside the peers.

    python benchmarks/data.py [--quick] [--json] [--corpus FOLDER] [--peer-python PYTHON]
                              [--megatron-python PYTHON] [--only PART]

Each part is a command of its own, which says what it measures and how; this one collects a corpus
once (at least 200 MB, from what is installed), runs them one after the other on it and prints what
each found. Exit status 1 when a target of any part is missed.

    tokens     tokenizing alone, beside Megatron's preprocess_data loop and tiktoken; ids equal
    dedup      near duplicates beside rensa, datasketch and datatrove; recall and precision
    chain      the whole chain beside datatrove's; two workers against one; memory
    packing    padding and cut documents at 4096 by strategy
    identity   the same bytes for any number of workers and after kills; flipped bytes found
    fuzz       readers of every format under damaged input
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = {
    "tokens": "data_tokens.py",
    "dedup": "near_dedup.py",
    "chain": "data_chain.py",
    "packing": "data_packing.py",
    "identity": "data_identity.py",
    "fuzz": "fuzz_data.py",
}
CORPUS_MB = {False: 220.0, True: 12.0}
TAKES = {  # options that not every part knows
    "--corpus": ("tokens", "dedup", "chain", "packing", "identity"),
    "--peer-python": ("dedup", "chain"),
    "--megatron-python": ("tokens",),
}


def command(part: str, chosen: argparse.Namespace, corpus: Path) -> list[str]:
    """What runs one part."""
    given = {
        "--corpus": str(corpus),
        "--peer-python": chosen.peer_python,
        "--megatron-python": chosen.megatron_python,
    }
    words = [sys.executable, str(HERE / PARTS[part])]
    for option, value in given.items():
        if part in TAKES[option] and value:
            words += [option, value]
    return words + ["--quick"] * chosen.quick + ["--json"] * chosen.json


def run(part: str, chosen: argparse.Namespace, corpus: Path) -> dict[str, Any]:
    """One part: whether it reached its targets, how long it took, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(
        command(part, chosen, corpus), capture_output=True, text=True, check=False
    )
    found: dict[str, Any] = {"ok": done.returncode == 0, "wall_s": time.perf_counter() - start}
    if not chosen.json:
        return found | {"printed": done.stdout.strip() or done.stderr.strip()}
    try:
        return found | {"found": json.loads(done.stdout)}
    except ValueError:
        return found | {"found": None, "error": done.stderr[-2000:]}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a corpus of 12 MB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", type=Path, help="a folder of part-*.jsonl; else collected")
    parser.add_argument("--peer-python", default="", help="where datatrove and rensa are")
    parser.add_argument("--megatron-python", default="", help="where megatron-core is")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), default=[])
    chosen = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        corpus = chosen.corpus or Path(scratch)
        if chosen.corpus is None:
            from corpus import collect

            collect(corpus, mb=CORPUS_MB[chosen.quick], part_mb=20.0)
        for part in chosen.only or PARTS:
            results[part] = run(part, chosen, corpus)
            if not chosen.json:
                verdict = "" if results[part]["ok"] else ", MISSED"
                print(f"== {part} ({results[part]['wall_s']:.0f} s{verdict})", flush=True)
                print(results[part]["printed"], flush=True)
    if chosen.json:
        print(json.dumps(results, indent=1))
    return 0 if all(result["ok"] for result in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
