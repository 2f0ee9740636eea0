"""Mutates input files and feeds them to the readers of text: crashes, slowest, peak memory.

    python benchmarks/fuzz_data.py --seconds 300 --json

Every reader runs in a process of its own for `--seconds`, so that one that is killed by a signal is
seen too. A crash is any exception but the package's own errors, any document that is not valid
UTF-8, and any division into units that gives other documents. Runs are repeatable: the mutations
hang on `--seed` alone (how many are run, on the machine).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.data.settings import Limits, Source
from meshwright.data.source.division import lines_before, plan_units
from meshwright.data.source.listing import list_inputs
from meshwright.data.source.reading import read_unit
from meshwright.data.source.records import records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.data.source.unit import Input

LONGEST = 64 << 10  # bytes of a mutated file
TOO_SLOW_S = 10.0
TOO_LARGE_MIB = 600.0
LIMITS = Limits(document_bytes=20_000, expansion=50.0)
PIECES = {
    "json": [
        *(b"{", b"}", b"[", b"]", b",", b":", b'"text"', b'"text":"a"', b"NaN", b"-Infinity"),
        *(b"1e999", b"9" * 400, b"\\ud800", b"\\udc00\\ud800", b"\\u0000", b"[" * 1500),
        *(b"\xef\xbb\xbf", b"\xff", b"\xed\xa0\x80", b"\r\n", b"\n", b"\n\n", b"\0", b" "),
    ],
    "text": [
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\r",
        b"\n \t\n",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\xe9",
        b"\0",
    ],
    "bytes": [b"\0", b"\xff", b"\x80" * 9, b"\x7f", b"PAR1", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"],
}


@dataclass
class Outcome:
    """What fuzzing one reader came to."""

    reader: str
    executions: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest: str = ""
    crashes: list[dict[str, str]] = field(default_factory=list)
    peak_mib: float = 0.0
    growth_mib: float = 0.0


@dataclass(frozen=True)
class Target:
    """A kind of file: its name, how it is read, what it starts from."""

    file: str
    seeds: tuple[bytes, ...]
    pieces: str
    documents: str = "file"
    id_field: str = ""


def jsonl_seed() -> bytes:
    records: list[dict[str, Any]] = [
        {"text": "one", "id": 1},
        {"id": "b", "text": "zwei \U0001f600 \u4e2d", "meta": {"deep": [1, 2, {"x": None}]}},
        {"text": "", "n": 1.5e300},
        {"text": 'line\nend\t\\ "quoted" \u2028', "id": -7},
    ]
    plain = "\n".join(
        json.dumps(record, ensure_ascii=i % 2 == 0) for i, record in enumerate(records)
    )
    return (plain + "\r\n\n" + plain + '\n{"text": "\\ud83d", "x": NaN}').encode()


def parquet_seeds() -> tuple[bytes, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "text": ["one", None, "zwei \u00e9", "three " * 30, "one", "six"],
            "id": [1, 2, 3, None, 5, 6],
            "raw": [b"a", b"\xff", None, b"d", b"e", b"f"],
            "meta": [{"body": f"b{i}", "tags": ["x"]} for i in range(6)],
        }
    )
    options: list[dict[str, Any]] = [
        {"compression": "none", "use_dictionary": False},
        {"compression": "snappy", "row_group_size": 2},
        {"compression": "zstd", "data_page_version": "2.0"},
        {
            "compression": "gzip",
            "use_dictionary": False,
            "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "PLAIN"},
        },
        {"compression": "none", "write_page_checksum": False, "store_schema": False},
    ]
    made = []
    for option in options:
        file = io.BytesIO()
        pq.write_table(table, file, **option)
        made.append(file.getvalue())
    return tuple(made)


def zstd_seeds(text: bytes) -> tuple[bytes, ...]:
    import zstandard

    plain = zstandard.compress(text)
    unknown = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(text)
    return plain, plain + unknown, b"\x50\x2a\x4d\x18\3\0\0\0abc" + unknown


def targets() -> dict[str, Target]:
    text = jsonl_seed()
    gz = gzip.compress(text, mtime=0)
    prose = "First line\nsecond\n\n \nThird caf\u00e9\r\n\r\nfourth\n".encode()
    parquet = parquet_seeds()
    return {
        "jsonl": Target("x.jsonl", (text,), "json", id_field="id"),
        "gz": Target("x.jsonl.gz", (gz, gz + gzip.compress(prose, mtime=0)), "bytes"),
        "zst": Target("x.jsonl.zst", zstd_seeds(text), "bytes"),
        "parquet": Target("x.parquet", parquet, "bytes", id_field="id"),
        "lines": Target("x.txt", (prose,), "text", documents="line"),
        "paragraphs": Target("x.txt", (prose,), "text", documents="paragraph"),
        "files": Target("x.md", (prose, text), "text"),
        "unknown": Target("x", (text, prose, gz, *zstd_seeds(prose), *parquet), "bytes"),
    }


def mutated(
    data: bytes, pieces: Sequence[bytes], others: Sequence[bytes], dice: random.Random
) -> bytes:
    for _ in range(dice.randint(1, 6)):
        a, b = sorted(dice.randint(0, len(data)) for _ in range(2))
        at = dice.randint(0, len(data))
        kind = dice.randrange(8)
        if kind == 0:
            data = data[:a] + data[b:]
        elif kind == 1:
            data = data[:at] + data[a:b] + data[at:]
        elif kind == 2:
            data = data[:at] + dice.choice(pieces) + data[at:]
        elif kind == 3:
            data = data[:at] + dice.choice(pieces) * dice.randint(2, 300) + data[at:]
        elif kind == 4:
            data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        elif kind == 5:
            data = data[:at] + dice.choice(others)[a:b]
        elif kind == 6:
            data = data[:at]
        elif at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        data = data[:LONGEST]
    return data


def read_all(
    inputs: tuple[Input, ...], sources: tuple[Source, ...], unit_bytes: int
) -> list[tuple[int, bytes, str]]:
    """Every document with its true line, and every line set aside."""
    units = plan_units(inputs, unit_bytes=unit_bytes)
    counts: list[list[int]] = []
    found: list[list[tuple[int, bytes, str]]] = []
    for unit in units:
        counts.append([])
        found.append([])
        rows = found[-1]
        for batch in read_unit(
            unit,
            inputs,
            sources=sources,
            limits=LIMITS,
            reject=lambda bad, rows=rows: rows.append((bad.line, bad.excerpt, bad.reason)),
            count=counts[-1].append,
        ):
            ids = batch.ids or [""] * len(batch)
            texts = [batch.encoded(i) for i in range(len(batch))]
            for text in texts:
                text.decode()
            rows += zip(batch.line.tolist(), texts, ids, strict=True)
    before = lines_before(units, counts)
    return sorted(
        (line + before[number][0], text, name)
        for number, rows in enumerate(found)
        for line, text, name in rows
    )


def reader_of(target: Target, path: Path) -> Callable[[], None]:
    sources = (Source(files=(str(path),), documents=target.documents, id_field=target.id_field),)

    def read() -> None:
        inputs = list_inputs(sources)
        whole = read_all(inputs, sources, 1 << 30)
        size = path.stat().st_size
        for unit_bytes in (7 + size // 40, 100 + size // 7):
            if read_all(inputs, sources, unit_bytes) != whole:
                raise AssertionError(f"units of {unit_bytes} bytes give other documents")
        with contextlib.suppress(MeshwrightError):  # a single bad line will do
            for found in inputs:
                list(records_of(found, LIMITS))

    return read


def peak_mib() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def fuzz(name: str, *, seconds: float, seed: int, folder: Path) -> Outcome:
    target = targets()[name]
    path = folder / target.file
    read = reader_of(target, path)
    path.write_bytes(target.seeds[0])
    read()  # what is loaded once counts for nobody
    outcome = Outcome(name)
    dice = random.Random(f"{seed} {name}")
    before, start = peak_mib(), time.perf_counter()
    pool = list(target.seeds)
    while time.perf_counter() - start < seconds:
        data = mutated(dice.choice(pool), PIECES[target.pieces], target.seeds, dice)
        path.write_bytes(data)
        began = time.process_time()
        try:
            read()
            if len(pool) < 200:  # what is read leads on to more that is
                pool.append(data)
        except MeshwrightError:
            outcome.refused += 1
        except Exception as error:
            if len(outcome.crashes) < 20:
                outcome.crashes.append({"error": repr(error)[:300], "hex": data.hex()})
        took = time.process_time() - began
        outcome.executions += 1
        if took > outcome.slowest_s:
            outcome.slowest_s, outcome.slowest = took, data.hex()[:2000]
    outcome.seconds = time.perf_counter() - start
    outcome.peak_mib = peak_mib()
    outcome.growth_mib = outcome.peak_mib - before
    return outcome


def apart(name: str, *, seconds: float, seed: int) -> Outcome:
    """The outcome of a reader in a process of its own; its death by a signal is a crash."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", folder, "--only", name]
        command += ["--seconds", str(seconds), "--seed", str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return Outcome(**json.loads(done.stdout.splitlines()[-1]))
        last = next(Path(folder).iterdir()).read_bytes().hex()
        error = f"exit code {done.returncode}: {done.stderr[-300:]}"
        return Outcome(name, crashes=[{"error": error, "hex": last}])


def shown(outcome: Outcome) -> str:
    return (
        f"{outcome.reader:12} {outcome.executions:9,} files  {outcome.refused:8,} refused"
        f"  {len(outcome.crashes):3} crashes  slowest {outcome.slowest_s * 1e3:8.1f} ms"
        f"  peak {outcome.peak_mib:6.0f} MiB (+{outcome.growth_mib:.0f})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each reader")
    parser.add_argument("--quick", action="store_true", help="2 seconds for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", choices=["", *targets()])
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    seconds = 2.0 if options.quick else options.seconds
    if options.child:
        found = fuzz(options.only, seconds=seconds, seed=options.seed, folder=Path(options.child))
        print(json.dumps(asdict(found)))
        return 0
    outcomes = []
    for name in [options.only] if options.only else targets():
        outcomes.append(apart(name, seconds=seconds, seed=options.seed))
        if not options.json:
            print(shown(outcomes[-1]), flush=True)
            for crash in outcomes[-1].crashes[:3]:
                print(f"    {crash['error']}\n    {crash['hex'][:200]}")
    if options.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    bad = (o.crashes or o.slowest_s > TOO_SLOW_S or o.peak_mib > TOO_LARGE_MIB for o in outcomes)
    return 1 if any(bad) else 0


if __name__ == "__main__":
    sys.exit(main())
