"""What diagnosing costs, beside HolisticTraceAnalysis, its successor and TraceLens in the same run.

    python benchmarks/diagnose.py --quick
    python benchmarks/diagnose.py --peers hta=PYTHON traceinsight=PYTHON tracelens=PYTHON --json

Real traces are those of `--traces`; the large one is made of a real one, repeated (52 times,
514 MB; 5 times with `--quick`). Every program reads every trace in a process of its own: seconds of
CPU of it and all it starts, peak memory of the largest process, megabytes of JSON for each second
of CPU. A peer is an interpreter that has it: `pip install HolisticTraceAnalysis==0.5.0 'pandas<3'`,
`pip install traceinsight==0.6.1`, `pip install` of TraceLens' repository; absent ones are told.
The last lines say which targets were met.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from made_trace import make_trace
from meshwright.diagnose.trace.layout import find_traces, layout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("public", "hta-ddp-2xa100-nccl-args", "nccl_data.json.gz")
FASTER = 20.0  # times, than any peer
SMALLER = 0.1  # of the peak memory of any peer
MB_PER_CPU_S = 150.0  # of JSON, for the whole analysis
RANKS, RANKS_S = 64, 60.0  # of 50 MB each, on two cores
SMALL_MB = 5.0  # traces below it measure how programs start
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
a = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
a.get_temporal_breakdown(visualize=False)
a.get_comm_comp_overlap(visualize=False)
a.get_gpu_kernel_breakdown(visualize=False)
a.get_idle_time_breakdown(ranks=[0], visualize=False)
"""
TRACELENS = """
import sys
from TraceLens.Reporting.generate_perf_report_pytorch import generate_perf_report_pytorch
generate_perf_report_pytorch(profile_json_path=sys.argv[1], output_csvs_dir=sys.argv[2])
"""
OURS = "meshwright"
STARTS = {  # what every run of a program imports before it reads
    OURS: "import meshwright.api.diagnosing.worker, meshwright.diagnose.account, "
    "meshwright.diagnose.trace.read, meshwright.report.diagnosis.record",
    "hta": "from hta.trace_analysis import TraceAnalysis",
    "traceinsight": "from hta.trace_analysis import TraceAnalysis",
    "tracelens": "import TraceLens.Reporting.generate_perf_report_pytorch",
}
PEERS = {"hta": HTA, "traceinsight": HTA, "tracelens": TRACELENS}


@dataclass(frozen=True)
class Run:
    """One program on one trace; `failed` is the last line of what it said."""

    program: str
    trace: str
    json_mb: float
    cpu_s: float
    wall_s: float
    peak_mb: float
    start_s: float = 0.0  # of CPU, to import the program
    failed: str = ""

    @property
    def work_s(self) -> float:
        """Seconds of CPU without those that the program takes to start."""
        return max(self.cpu_s - self.start_s, 0.01)

    @property
    def mb_per_cpu_s(self) -> float:
        """Megabytes of JSON for a second of CPU."""
        return self.json_mb / self.cpu_s if self.cpu_s else 0.0


@dataclass(frozen=True)
class Verdict:
    """Whether a target was met; None where it could not be measured."""

    target: str
    measured: str
    met: bool | None


def json_mb(path: Path) -> float:
    if path.suffix != ".gz":
        return path.stat().st_size / 1e6
    with gzip.open(path) as file:
        return sum(len(piece) for piece in iter(lambda: file.read(1 << 20), b"")) / 1e6


def measured(
    program: str, command: list[str], *, trace: str, mb: float, folder: Path, start_s: float = 0.0
) -> Run:
    """The command's seconds and peak memory, those of its children with it."""
    with (folder / "said").open("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, cwd=folder)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - start
        said.seek(0)
        lines = said.read().strip().splitlines()
    unit = 1 if sys.platform == "darwin" else 1024
    failed = (lines[-1:] or [f"exit {process.returncode}"])[0][:200] if process.returncode else ""
    return Run(
        program=program,
        trace=trace,
        json_mb=mb,
        cpu_s=used.ru_utime + used.ru_stime,
        wall_s=wall_s,
        peak_mb=used.ru_maxrss * unit / 1e6,
        start_s=start_s,
        failed=failed,
    )


def starts(peers: dict[str, str], folder: Path) -> dict[str, float]:
    """Seconds of CPU that programs take to be imported."""
    found = {}
    for program, python in {OURS: sys.executable, **peers}.items():
        command = [python, "-W", "ignore", "-c", STARTS[program]]
        runs = [measured(program, command, trace="", mb=0.0, folder=folder) for _ in range(3)]
        found[program] = statistics.median(run.cpu_s for run in runs)
    return found


def ours(paths: list[Path], *, workers: int = 1) -> list[str]:
    words = [sys.executable, "-P", "-m", "meshwright", "diagnose", *map(str, paths), "--json"]
    return [*words, "--workers", str(workers)] if workers > 1 else words


def peer(name: str, python: str, path: Path, folder: Path) -> list[str]:
    return [python, "-W", "ignore", "-c", PEERS[name], str(path), str(folder / "csv")]


def best(repeats: int, run: Callable[[], Run]) -> Run:
    """The median by CPU of several runs."""
    runs = sorted((run() for _ in range(repeats)), key=lambda r: r.cpu_s)
    return runs[len(runs) // 2]


def compared(
    paths: list[Path], peers: dict[str, str], *, repeats: int, folder: Path
) -> Iterator[Run]:
    """Every program on every trace."""
    start = starts(peers, folder)
    for path in paths:
        mb, name = json_mb(path), f"{path.parent.name}/{path.name}"[:60]

        def run(program: str, command: list[str], name: str = name, mb: float = mb) -> Run:
            return measured(
                program, command, trace=name, mb=mb, folder=folder, start_s=start[program]
            )

        yield best(repeats, lambda path=path, run=run: run(OURS, ours([path])))
        for program, python in peers.items():
            yield run(program, peer(program, python, path, folder))


def many_ranks(source: Path, folder: Path, *, ranks: int, copies: int) -> tuple[Run, float]:
    """The command on a folder of ranks with two workers; the sum of its processes' memory in MB."""
    one, target = folder / "one.json", folder / "ranks"
    make_trace(source, one, copies=copies)
    text = one.read_bytes()
    target.mkdir()
    for rank in range(ranks):
        own = b'"rank": %d, "world_size": %d' % (rank, ranks)
        named = text.replace(b'"rank": 0, "world_size": 2', own, 1)
        (target / f"rank{rank}.json").write_bytes(named)
    stop, peaks = threading.Event(), [0.0]
    watcher = threading.Thread(target=_watch, args=(os.getpid(), stop, peaks), daemon=True)
    watcher.start()
    mb = ranks * len(text) / 1e6
    run = measured(
        OURS, ours([target], workers=2), trace=f"{ranks} ranks of {len(text) / 1e6:.0f} MB",
        mb=mb, folder=folder,
    )  # fmt: skip
    stop.set()
    watcher.join()
    shutil.rmtree(target)
    one.unlink()
    return run, peaks[0]


def _watch(parent: int, stop: threading.Event, peaks: list[float]) -> None:
    while not stop.wait(0.1):
        peaks[0] = max(peaks[0], sum(map(_resident_mb, _below(parent))))


def _below(pid: int) -> Iterator[int]:
    """All processes that a process has started."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(c) for t in tasks for c in (t / "children").read_text().split()]
    except OSError:
        return
    for child in found:
        yield child
        yield from _below(child)


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _beside(name: str, theirs: list[Run], mine: dict[str, Run], large: str) -> Iterator[Verdict]:
    """A peer's runs beside ours: the large trace as it is, real ones once started."""
    aim = f"{FASTER:.0f} times faster than {name}"
    on_large = next((r for r in theirs if r.trace == large), None)
    if on_large is None:
        yield Verdict(f"{aim} on the large trace", "it is absent or failed", None)
    else:
        ratio = on_large.cpu_s / mine[large].cpu_s
        told = f"{ratio:.1f} ({mine[large].cpu_s:.2f} and {on_large.cpu_s:.1f} s)"
        yield Verdict(f"{aim} on the large trace", told, ratio >= FASTER)
        part = mine[large].peak_mb / on_large.peak_mb
        told = f"{mine[large].peak_mb:.0f} of {on_large.peak_mb:.0f} MB ({part:.1%})"
        yield Verdict(f"a tenth of {name}'s memory on the large trace", told, part < SMALLER)
    real = [r for r in theirs if r.trace != large]
    if real:
        ratios = [r.work_s / mine[r.trace].work_s for r in real]
        whole = [r.cpu_s / mine[r.trace].cpu_s for r in real]
        told = f"{min(ratios):.1f} to {max(ratios):.1f}, median {statistics.median(ratios):.1f}"
        told += f"; with their start {min(whole):.1f} to {max(whole):.1f}"
        yield Verdict(f"{aim} on real traces, once started", told, min(ratios) >= FASTER)


def verdicts(runs: list[Run], large: str, ranks: tuple[Run, float] | None) -> Iterator[Verdict]:
    """Each target beside what was measured."""
    mine = {run.trace: run for run in runs if run.program == OURS and not run.failed}
    for name in PEERS if mine else ():
        theirs = [r for r in runs if r.program == name and r.trace in mine and not r.failed]
        yield from _beside(name, [r for r in theirs if r.json_mb >= SMALL_MB], mine, large)
    if large in mine:
        rate = mine[large].mb_per_cpu_s
        yield Verdict(
            f"{MB_PER_CPU_S:.0f} MB for a second of CPU", f"{rate:.0f}", rate >= MB_PER_CPU_S
        )
    if ranks is not None:
        run, peak = ranks
        told = run.failed or f"{run.wall_s:.1f} s, {run.cpu_s:.1f} s of CPU, {peak:.0f} MB in all"
        met = not run.failed and run.wall_s < RANKS_S
        yield Verdict(f"{run.trace} in {RANKS_S:.0f} s on two cores", told, met)


def shown(run: Run) -> str:
    told = f"  FAILED: {run.failed}" if run.failed else ""
    return (
        f"{run.program:13} {run.trace:60} {run.json_mb:7.1f} MB {run.cpu_s:8.2f} CPU s"
        f" {run.mb_per_cpu_s:7.1f} MB/s {run.peak_mb:7.0f} MB{told}"
    )


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--quick", action="store_true", help="three traces, a tenth of the large one"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--peers", nargs="*", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--repeats", type=int, default=3, help="of meshwright; the median counts")
    parser.add_argument("--only", choices=["", "real", "large", "ranks"], default="")
    parser.add_argument("--scratch", type=Path, help="where large traces are made")
    return parser.parse_args()


def main() -> int:
    options = asked()
    peers = dict(word.split("=", 1) for word in options.peers)
    unknown = peers.keys() - PEERS.keys()
    if unknown:
        sys.exit(f"unknown peer {', '.join(sorted(unknown))}: there are {', '.join(PEERS)}")
    source = options.traces / SOURCE
    if not source.is_file():
        sys.exit(f"there is no {source}: give the folder of the public traces as --traces")
    found = [p for p in find_traces([options.traces])[0] if layout_of(p) == "kineto"]
    found.sort(key=lambda p: -p.stat().st_size)
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        folder = Path(scratch)
        large = folder / "large.json"
        if options.only in ("", "large"):
            make_trace(source, large, copies=5 if options.quick else 52)
        chosen = found[:3] if options.quick else found
        chosen = chosen if options.only in ("", "real") else []
        for run in compared(
            [*chosen, *([large] if large.is_file() else [])],
            peers,
            repeats=options.repeats,
            folder=folder,
        ):
            runs.append(run)
            if not options.json:
                print(shown(run), flush=True)
        large_name = f"{folder.name}/{large.name}"[:60]
        large.unlink(missing_ok=True)
        ranks = None
        if options.only in ("", "ranks"):
            ranks = many_ranks(source, folder, ranks=4 if options.quick else RANKS, copies=5)
            if not options.json:
                print(shown(ranks[0]), flush=True)
    judged = list(verdicts(runs, large_name, ranks))
    if options.json:
        told = {"runs": [asdict(r) for r in runs], "verdicts": [asdict(v) for v in judged]}
        print(json.dumps(told, indent=2))
    else:
        for one in judged:
            word = {True: "met", False: "MISSED", None: "not measured"}[one.met]
            print(f"{word:13} {one.target}: {one.measured}")
    return 1 if any(one.met is False for one in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
