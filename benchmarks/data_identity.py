"""The same bytes, whatever happens: workers, kills, a full disk, a truncated input, a flipped byte.

    python benchmarks/data_identity.py [--quick] [--json] [--corpus FOLDER] [--kills 20] [--seed 0]

One build with one worker is the reference. Then the same build with 2 and 5 workers; a build killed
with SIGKILL at random moments (the whole tree, the parent alone, or one worker) and run again until
it has been killed `--kills` times; one whose disk fills up (a limit on the size of files); one with
an input cut short, then whole again. Every folder must be equal to the reference byte for byte, and
every document read must stand in the manifest once. At last a byte is flipped in each file of the
folder, at random places; `data verify` must find each.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from data_chain import config, gpt2, sample

MESHWRIGHT = (sys.executable, "-m", "meshwright")


def digests(folder: Path) -> dict[str, str]:
    """A hash of each file below a folder, but for hidden ones: the build's own workings."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("."):
            found[name] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return found


class Builds:
    """Builds of one input into folders of their own, by one configuration."""

    def __init__(self, scratch: Path, files: list[Path], tokenizer: Path) -> None:
        self.scratch, self.files, self.tokenizer = scratch, files, tokenizer

    def command(self, name: str, *, workers: int, files: list[Path] | None = None) -> list[str]:
        """What builds into the folder `name`."""
        path = self.scratch / f"{name}.toml"
        folder = self.scratch / name
        text = config(
            files or self.files, tokenizer=self.tokenizer, folder=folder, bounds="lenient"
        )
        path.write_text(text.replace("[output]", "[output]\nshard_tokens = 1_000_000\ntext = true"))
        command = [*MESHWRIGHT, "data", "build", str(path), "--quiet"]
        return [*command, "--workers", str(workers)]

    def folder(self, name: str, *, workers: int) -> Path:
        """A finished build."""
        done = subprocess.run(
            self.command(name, workers=workers), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"build {name}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return self.scratch / name


def children(pid: int) -> list[int]:
    """Processes started by `pid`, and by those."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(OSError):
        own = [int(text) for text in path.read_text().split()]
        return own + [deeper for child in own for deeper in children(child)]
    return []


def kill(process: subprocess.Popen[bytes], *, how: str, chance: random.Random) -> None:
    """SIGKILL for the whole tree, for the parent alone, or for one of the others."""
    below = children(process.pid)
    chosen = {"tree": [*below, process.pid], "parent": [process.pid]}.get(how)
    if chosen is None:
        chosen = [chance.choice(below)] if below else [process.pid]
    for pid in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def killed(builds: Builds, *, kills: int, took_s: float, chance: random.Random) -> dict[str, Any]:
    """A build killed so many times before it may end; each run begins where the last one left."""
    done: dict[str, int] = {"tree": 0, "parent": 0, "worker": 0}
    runs = 0
    while sum(done.values()) < kills:
        runs += 1
        command = builds.command("killed", workers=2)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=chance.uniform(0.2, max(1.0, took_s * 0.7)))
        if process.poll() is not None:  # it was done before: begin again
            shutil.rmtree(builds.scratch / "killed", ignore_errors=True)
            continue
        how = chance.choice(sorted(done))
        kill(process, how=how, chance=chance)
        done[how] += 1
        process.wait()
    builds.folder("killed", workers=2)
    return {"kills": done, "runs": runs}


def full(builds: Builds) -> dict[str, Any]:
    """Builds that meet a full disk: the message, and the folder after it has room again."""
    command = builds.command("full", workers=1)
    limit = "import resource, sys, os, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += (
        "resource.setrlimit(resource.RLIMIT_FSIZE, (%d, %d)); os.execv(sys.argv[1], sys.argv[1:])"
    )
    codes, said = [], ""
    for size in (20_000, 300_000, 1_500_000):
        program = [sys.executable, "-c", limit % (size, size), *command]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        codes.append(done.returncode)
        said = done.stderr.strip().splitlines()[0] if done.stderr.strip() else ""
        if "Traceback" in done.stderr:
            raise SystemExit(f"traceback on a full disk:\n{done.stderr[-2000:]}")
    builds.folder("full", workers=1)
    return {"exit_codes": codes, "said": said}


def truncated(builds: Builds) -> dict[str, Any]:
    """Each input cut in the middle, one after the other, then whole again and built once more."""
    codes: dict[str, int] = {}
    for path in builds.files:
        whole, stamp = path.read_bytes(), path.stat().st_mtime_ns
        path.write_bytes(whole[: len(whole) * 2 // 3])
        done = subprocess.run(
            builds.command("truncated", workers=2), capture_output=True, text=True, check=False
        )
        codes[path.name] = done.returncode
        path.write_bytes(whole)
        os.utime(path, ns=(stamp, stamp))
        if "Traceback" in done.stderr:
            raise SystemExit(f"traceback on a truncated input:\n{done.stderr[-2000:]}")
    done = subprocess.run(
        [*builds.command("truncated", workers=2), "--fresh"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {"exit_codes": codes | {"whole again": done.returncode}}


def flipped(folder: Path, *, tries: int, chance: random.Random) -> dict[str, Any]:
    """How many single flipped bytes, spread over the files, `data verify` finds."""
    found, missed = 0, []
    files = [folder / name for name in digests(folder) if (folder / name).stat().st_size]
    chosen = files + [chance.choice(files) for _ in range(max(0, tries - len(files)))]
    for path in chosen:
        raw = bytearray(path.read_bytes())
        at = chance.randrange(len(raw))
        raw[at] ^= 1 << chance.randrange(8)
        before = path.read_bytes()
        path.write_bytes(raw)
        done = subprocess.run(
            [*MESHWRIGHT, "data", "verify", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        path.write_bytes(before)
        if done.returncode == 1 and "Traceback" not in done.stderr:
            found += 1
        else:
            missed.append(f"{path.name}:{at}")
    return {"flips": len(chosen), "found": found, "missed": missed}


def inputs(corpus: Path, scratch: Path, *, mb: float) -> list[Path]:
    """A third of the sample each as plain jsonl, gzip and parquet."""
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = sample(sorted(corpus.glob("part-*.jsonl")), scratch / "sample.jsonl", mb=mb)
    lines = whole.read_bytes().splitlines(keepends=True)
    folder = scratch / "in"
    folder.mkdir()
    third = len(lines) // 3
    (folder / "a.jsonl").write_bytes(b"".join(lines[:third]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[third : 2 * third])))
    texts = [json.loads(line)["text"] for line in lines[2 * third :]]
    pq.write_table(pa.table({"text": texts}), folder / "c.parquet", row_group_size=100)
    return sorted(folder.iterdir())


def counted(folder: Path) -> dict[str, int]:
    """Documents in the manifest's table: read, kept, and those that stand there twice."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "documents.parquet").to_pylist()
    places = {(row["input"], row["line"]) for row in table}
    kept = sum(1 for row in table if not row["reason"])
    return {"read": len(table), "kept": kept, "doubled": len(table) - len(places)}


def measure(corpus: Path, scratch: Path, *, mb: float, kills: int, seed: int) -> dict[str, Any]:
    """Every build of this file, each compared with the reference."""
    chance = random.Random(seed)
    builds = Builds(scratch, inputs(corpus, scratch, mb=mb), gpt2(scratch))
    start = time.perf_counter()
    reference = digests(builds.folder("one", workers=1))
    took_s = time.perf_counter() - start
    found: dict[str, Any] = {"files": len(reference), "build_s": took_s}
    found["documents"] = counted(scratch / "one")
    for workers in (2, 5):
        builds.folder(f"workers-{workers}", workers=workers)
    found["killed"] = killed(builds, kills=kills, took_s=took_s, chance=chance)
    found["full"] = full(builds)
    found["truncated"] = truncated(builds)
    names = ("workers-2", "workers-5", "killed", "full", "truncated")
    found["equal"] = {name: digests(scratch / name) == reference for name in names}
    found["flipped"] = flipped(scratch / "one", tries=2 * kills, chance=chance)
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """The figures as text."""
    kills, flips = found["killed"], found["flipped"]
    return [
        f"reference: {found['files']} files, {found['build_s']:.1f} s; {found['documents']}",
        *(f"{name}: {'equal' if same else 'DIFFERS'}" for name, same in found["equal"].items()),
        f"killed {kills['kills']} in {kills['runs']} runs",
        f"full disk: exit {found['full']['exit_codes']}; {found['full']['said']}",
        f"truncated: exit {found['truncated']['exit_codes']}",
        f"flipped bytes found: {flips['found']} of {flips['flips']} {flips['missed'] or ''}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="3 MB and 3 kills")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--corpus", type=Path, help="a folder of part-*.jsonl; else collected")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    mb, kills = (3.0, 3) if chosen.quick else (20.0, chosen.kills)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        corpus = chosen.corpus
        if corpus is None:
            from corpus import collect

            corpus = scratch / "corpus"
            collect(corpus, mb=mb + 1, part_mb=20.0)
        found = measure(corpus, scratch, mb=mb, kills=kills, seed=chosen.seed)
    flips = found["flipped"]
    sound = all(found["equal"].values()) and flips["found"] == flips["flips"]
    sound = sound and not found["documents"]["doubled"]
    print(json.dumps(found, indent=1) if chosen.json else "\n".join(lines(found)))
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
