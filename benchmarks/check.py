"""Speed of `meshwright check`: one file of each framework from a cold start, and a large folder.

    python benchmarks/check.py [--quick] [--json]
    python benchmarks/check.py --phases [--gpus H100:8]

Seconds are CPU seconds of one process with one thread, imports included. A single file is checked
in a fresh process, median of several; figures with and without the search for a better plan
(`--no-compare`) stand side by side. The folder holds 1,000 configurations (`--quick`: 100) of all
frameworks, no two alike, written by `meshwright convert` from plans of several models. `reference`
is what starting Python and importing NumPy takes on the same machine at the same time: of a busy
machine, compare figures by it. Exit status 1 when a figure misses its target.

`--phases` tells instead where the CPU time of one file goes: starting Python, importing the modules
that the check uses, reading the file, judging it, comparing its plan, printing. `--gpus` is given
to the check and makes most configurations whole enough to be compared.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.plan.job import Job

TARGETS = {"file_ms": 300.0, "folder_s": 20.0}
FILES = 1000
QUICK = 10
MODELS = ("llama-3-8b", "llama-3.1-70b", "qwen3-32b", "mixtral-8x7b", "gpt3-13b")
MESHES = tuple(
    {"tp": tp, "pp": pp, "micro_batch_size": mbs, "zero_stage": zero}
    for tp, pp, mbs, zero in itertools.product((1, 2, 4, 8), (1, 2, 4), (1, 2), (0, 1))
)
SEQ_LENS = (2048, 4096, 8192)


def jobs() -> Iterator[Job]:
    """Plans without end, no two alike: model, length, mesh, then ever more nodes."""
    from meshwright.api import cluster, load_model, workload
    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

    models = [load_model(name) for name in MODELS]
    for nodes in itertools.count(4, 4):
        gpus = cluster("H100:8", nodes=nodes)
        for seq_len, mesh, model in itertools.product(SEQ_LENS, MESHES, models):
            dp = gpus.num_gpus // (mesh["tp"] * mesh["pp"])
            work = workload(seq_len=seq_len, global_batch=32 * nodes)
            yield Job(model=model, cluster=gpus, workload=work, plan=Plan(**mesh, dp=dp))


def texts(count: int) -> list[tuple[str, str, str]]:
    """`count` configurations as (framework, file name, text), the frameworks in turn."""
    from meshwright.api.converting import written
    from meshwright.frameworks.framework import all_frameworks

    targets = [item for item in all_frameworks() if item.express]
    found: dict[str, tuple[str, str, str]] = {}  # by text, since parts of two may be alike
    for job, target in zip(jobs(), itertools.cycle(targets), strict=False):
        expressed = target.express(job, "") if target.express else None
        if expressed is None or expressed.refused:
            continue
        for name, text in written(target, expressed).items():
            found.setdefault(text, (target.name, name, text))
        if len(found) >= count:
            break
    return list(found.values())[:count]


def write_folder(folder: Path, count: int) -> dict[str, str]:
    """Writes configurations below a folder; returns one file for each framework."""
    first: dict[str, str] = {}
    for number, (framework, name, text) in enumerate(texts(count)):
        path = folder / f"{number:04d}" / name
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        first.setdefault(framework, str(path))
    return first


def cpu_s(
    arguments: list[str], *, times: int, module: tuple[str, ...] = ("-m", "meshwright")
) -> float:
    """Median CPU seconds of several runs of the command line, or of Python itself."""
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, *module, *arguments],
            check=False,
            capture_output=True,
            text=True,
            env=one_thread(),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode not in (0, 1):
            raise SystemExit(f"meshwright {' '.join(arguments)} failed:\n{done.stderr}")
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(found)


def one_thread() -> dict[str, str]:
    """The environment of a child that may use one thread and keeps compiled modules."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    kept = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **dict.fromkeys(names, "1")}


def measure(*, quick: bool) -> dict[str, Any]:
    """Every figure."""
    count = FILES // (QUICK if quick else 1)
    times = 3 if quick else 7
    with tempfile.TemporaryDirectory() as name:
        files = write_folder(Path(name), count)
        single = {
            framework: {
                "ms": 1000 * cpu_s(["check", path], times=times),
                "no_compare_ms": 1000 * cpu_s(["check", "--no-compare", path], times=times),
                "gpus_ms": 1000 * cpu_s(["check", path, "--gpus", "H100:8"], times=times),
            }
            for framework, path in sorted(files.items())
        }
        folder = ["check", name, "--output-format", "concise"]
        return {
            "files": count,
            "file": single,
            "folder_s": cpu_s(folder, times=1),
            "folder_no_compare_s": cpu_s([*folder, "--no-compare"], times=1),
            "version_ms": 1000 * cpu_s(["--version"], times=times),
            "reference_ms": 1000 * cpu_s(["-c", "import numpy"], times=times, module=()),
        }


PHASES = """
import json, sys, time
from importlib import import_module

asked, spent, last = json.loads(sys.argv[1]), {}, 0.0

def mark(phase):
    global last
    spent[phase], last = time.process_time() - last, time.process_time()

mark("start")
for name in asked["modules"]:
    import_module(name)
mark("import")
from meshwright.api import checking, comparing
from meshwright.report.check import render
from meshwright.report.check.report import Report
from meshwright.report.check.texts import Texts

distance = comparing.distance

def timed(*arguments, **named):
    mark("judge")
    found = distance(*arguments, **named)
    mark("compare")
    return found

comparing.distance = timed
given = checking.Given(gpus=asked["gpus"], edits=False)
(reading,) = checking._read([asked["file"]], given)
mark("read")
report = Report(files=(checking._checked(reading, given, compare=True),))
mark("rest" if "judge" in spent else "judge")
render(report, Texts(report.sources), form="text")
mark("print")
spent["judge"] += spent.pop("rest", 0.0)
print(json.dumps({"ms": {n: 1000 * s for n, s in spent.items()}, "modules": sorted(sys.modules)}))
"""  # what a check does, step by step; its modules first, as a run before listed them


def phases(file: str, gpus: str | None, *, times: int) -> dict[str, float]:
    """CPU milliseconds of one cold check by phase, medians of several runs."""
    modules: list[str] = []
    found: list[dict[str, float]] = []
    for _ in range(times + 1):
        asked = json.dumps({"file": file, "gpus": gpus, "modules": modules})
        done = subprocess.run(
            [sys.executable, "-c", PHASES, asked],
            check=True,
            capture_output=True,
            text=True,
            env=one_thread(),
        )
        told = json.loads(done.stdout)
        modules = [
            n for n in told["modules"] if n.split(".")[0] in ("meshwright", "numpy", "click")
        ]
        found.append(told["ms"])
    names = ("start", "import", "read", "judge", "compare", "print")
    return {n: statistics.median(f.get(n, 0.0) for f in found[1:]) for n in names}


def measure_phases(gpus: str | None) -> dict[str, dict[str, float]]:
    """CPU milliseconds by framework and phase."""
    with tempfile.TemporaryDirectory() as name:
        files = write_folder(Path(name), FILES // QUICK)
        return {framework: phases(path, gpus, times=3) for framework, path in sorted(files.items())}


def phase_lines(found: dict[str, dict[str, float]]) -> list[str]:
    """The phases as text."""
    return [
        f"{framework}: {sum(ms.values()):.0f} CPU ms: "
        + ", ".join(f"{name} {value:.0f}" for name, value in ms.items())
        for framework, ms in found.items()
    ]


def missed(report: dict[str, Any]) -> list[str]:
    """The targets that a report misses; a part of the folder has a part of its time."""
    limit_s = TARGETS["folder_s"] * report["files"] / FILES
    wrong = [
        f"{name}: {figures[what]:.0f} {what} > {TARGETS['file_ms']:.0f}"
        for name, figures in report["file"].items()
        for what in ("ms", "gpus_ms")
        if figures[what] > TARGETS["file_ms"]
    ]
    if report["folder_s"] > limit_s:
        wrong.append(f"folder: {report['folder_s']:.1f} s > {limit_s:.1f}")
    return wrong


def lines(report: dict[str, Any]) -> list[str]:
    """The report as text."""
    text = [
        f"{name}: {f['ms']:.0f} CPU ms, without comparing {f['no_compare_ms']:.0f}, "
        f"with --gpus H100:8 {f['gpus_ms']:.0f}"
        for name, f in report["file"].items()
    ]
    text.append(
        f"folder of {report['files']:,}: {report['folder_s']:.1f} CPU s, "
        f"without comparing {report['folder_no_compare_s']:.1f}"
    )
    text.append(f"--version: {report['version_ms']:.0f} CPU ms")
    text.append(f"reference (Python with NumPy): {report['reference_ms']:.0f} CPU ms")
    return text + [f"MISSED {what}" for what in missed(report)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--phases", action="store_true", help="where the time of one file goes")
    parser.add_argument("--gpus", help="for --phases, as H100:8")
    asked = parser.parse_args()
    if asked.phases:
        found = measure_phases(asked.gpus)
        print(json.dumps(found, indent=2) if asked.json else "\n".join(phase_lines(found)))
        return 0
    report = measure(quick=asked.quick)
    print(json.dumps(report, indent=2) if asked.json else "\n".join(lines(report)))
    return 1 if missed(report) else 0


if __name__ == "__main__":
    sys.exit(main())
