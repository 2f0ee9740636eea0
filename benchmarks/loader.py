"""The loader: rows and tokens a CPU second, waiting, and evenness of the ranks' work.

    python benchmarks/loader.py [--quick] [--json] [--peers-python PYTHON]

A folder of two shards is made of documents of lognormal length (median 600 tokens, mean 1,200),
packed into rows of 4,096. Ours reads it step by step in one process without a thread: token ids,
labels, position ids, and under masks document ids and cu_seqlens, as int64. The peers run in the
interpreter of --peers-python, each in a process of its own (peers/loaders.py), over the same tokens
in their own format, shuffled, for the same number of rows: Megatron's GPTDataset (of
megatron-core), litdata, mosaicml-streaming. The last two know neither labels nor documents: their
rows are stored token ids, as they lie. Files lie in the page cache. CPU seconds are those of the
process; medians of several runs.

Waiting is measured behind steps that sleep: the share of the time in which `next` was waited for.
`imbalance` is the cost of the costliest rank over the mean, rows as they come and dealt by cost.
Exit status 1 when a figure misses its target.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.data.loader import Loader
from meshwright.data.settings import Pack
from meshwright.data.shards.assemble import write_folder
from meshwright.data.shards.manifest import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping

PEERS = Path(__file__).parent / "peers" / "loaders.py"
TARGETS = {"masks": 4.0, "no masks": 1.5, "wait_share": 0.05, "imbalance_left": 0.1}
SEQ_LEN = 4096
BATCH = 64
STEP_MS = (20, 100)


def write_shards(path: Path, *, strategy: str, tokens: int) -> None:
    """Two shards of made-up documents, end of text behind each."""
    rng = np.random.default_rng(0)
    shards = []
    for _ in range(2):
        lengths = rng.lognormal(np.log(600), 1.18, tokens // 2400).clip(2, 200_000)
        ends = np.cumsum(lengths.astype(np.int32))
        ids = rng.integers(2, 50_000, ends[-1]).astype(np.uint16)
        ids[ends - 1] = 0
        shards.append(np.split(ids, ends[:-1]))
    write_folder(
        path,
        {"train": shards},
        pack=Pack(seq_len=SEQ_LEN, strategy=strategy),
        vocabulary=Vocabulary(
            digest="benchmark", vocab_size=50_257, eod_id=0, pad_id=1, dtype="<u2"
        ),
    )


def ours(folder: Path, *, rows: int, runs: int, **options: Any) -> dict[str, float]:
    """Rates of one process that makes every batch itself."""
    rates = []
    for _ in range(runs):
        with Loader(folder, global_batch_size=BATCH, prefetch=0, **options) as loader:
            next(loader)  # opens the shards and checks their plans
            began_s = time.process_time()
            for _ in range(rows // BATCH):
                next(loader)
            rates.append(rows / (time.process_time() - began_s))
    return rated(statistics.median(rates))


def rated(rows_per_s: float) -> dict[str, float]:
    return {"rows_per_cpu_s": rows_per_s, "tokens_per_cpu_s": rows_per_s * SEQ_LEN}


def peer(python: str, name: str, folder: Path, *, rows: int, runs: int) -> dict[str, Any]:
    """Rates of a peer, or why there are none."""
    rates = []
    for _ in range(runs):
        command = [python, str(PEERS), name, str(folder), str(rows), str(SEQ_LEN)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            told = done.stderr.strip().splitlines()[-1:] or [f"exit {done.returncode}"]
            return {"absent": told[0]}
        found = json.loads(done.stdout.strip().splitlines()[-1])
        rates.append(found["rows"] / found["cpu_s"])
    return rated(statistics.median(rates))


def waits(folder: Path, *, steps: int) -> dict[str, Any]:
    """Share of the time spent waiting, by the length of the step that follows each batch."""
    found = {}
    for step_ms in STEP_MS:
        with Loader(folder, global_batch_size=BATCH, micro_batch_size=2, prefetch=2) as loader:
            for _ in range(steps):
                next(loader)
                time.sleep(step_ms / 1000)
            found[f"{step_ms} ms"] = {
                "share": loader.waits.share,
                "first_ms": loader.waits.first_s * 1000,
            }
    return found


def imbalances(folder: Path, *, steps: int) -> dict[str, Any]:
    """Means over steps, of attention alone and of whole layers of hidden size 4096."""
    found = {}
    for dp_size in (8, 64):
        for name, cost in (("attention", {"token_cost": 0.0}), ("layers", {})):
            with Loader(
                folder,
                global_batch_size=512,
                dp_size=dp_size,
                prefetch=0,
                pp_rank=1,
                pp_size=3,
                **cost,
            ) as loader:
                told = [next(loader).imbalance for _ in range(steps)]
            found[f"dp {dp_size}, {name}"] = {
                "before": statistics.mean(one.before for one in told if one),
                "after": statistics.mean(one.after for one in told if one),
            }
    return found


def measure(folder: Path, *, quick: bool, python: str | None) -> dict[str, Any]:
    rows, runs = (640, 3) if quick else (3200, 5)
    packed, plain = folder / "best-fit", folder / "concatenate"
    for path in (packed, plain):
        write_shards(path, strategy=path.name, tokens=8_000_000 if quick else 32_000_000)
    figures: dict[str, Any] = {
        "ours, documents, masks": ours(plain, rows=rows, runs=runs),
        "ours, documents, no masks": ours(plain, rows=rows, runs=runs, document_masks=False),
        "ours, packed rows, masks": ours(packed, rows=rows, runs=runs),
        "ours, packed rows, masks, cp 4": ours(packed, rows=rows, runs=runs, cp_size=4),
    }
    names = ("megatron-masks", "megatron", "litdata", "streaming") if python else ()
    for name in names:
        assert python is not None
        figures[name] = peer(python, name, plain, rows=rows, runs=min(runs, 3))
    return {
        "rates": figures,
        "waits": waits(packed, steps=30 if quick else 100),
        "imbalance": imbalances(packed, steps=3),
    }


def misses(found: Mapping[str, Any]) -> list[str]:
    """The targets that are missed, in words."""
    told = []
    rates = found["rates"]
    for with_masks, mine in (("megatron-masks", "masks"), ("megatron", "no masks")):
        theirs = rates.get(with_masks, {}).get("rows_per_cpu_s")
        if theirs:
            ratio = rates[f"ours, documents, {mine}"]["rows_per_cpu_s"] / theirs
            if ratio < TARGETS[mine]:
                told.append(f"{ratio:.1f} times {with_masks}, not {TARGETS[mine]}")
    for step, wait in found["waits"].items():
        if wait["share"] > TARGETS["wait_share"]:
            told.append(f"waits {wait['share']:.1%} of the time behind steps of {step}")
    for name, one in found["imbalance"].items():
        if one["after"] - 1 > (one["before"] - 1) * TARGETS["imbalance_left"] + 0.01:
            told.append(f"{name}: {one['before']:.3f} to {one['after']:.3f} only")
    return told


def show(found: Mapping[str, Any]) -> None:
    for name, rate in found["rates"].items():
        if "absent" in rate:
            print(f"{name:32} absent: {rate['absent']}")
        else:
            tokens = rate["tokens_per_cpu_s"] / 1e6
            print(f"{name:32} {rate['rows_per_cpu_s']:10,.0f} rows/CPU-s {tokens:8.1f} Mtok/CPU-s")
    for step, wait in found["waits"].items():
        print(
            f"waiting behind steps of {step}: {wait['share']:.2%}, first {wait['first_ms']:.0f} ms"
        )
    for name, one in found["imbalance"].items():
        print(f"imbalance, {name}: {one['before']:.4f} -> {one['after']:.4f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="less data, fewer runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--peers-python", help="an interpreter with the peers")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), quick=asked.quick, python=asked.peers_python)
    missed = misses(found)
    if asked.json:
        print(json.dumps({**found, "missed": missed}, indent=1))
    else:
        show(found)
        print("\n".join(f"missed: {one}" for one in missed) or "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
