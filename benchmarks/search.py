"""Speed of the search: plans a second, two exhaustive spaces, cold start, and Calculon beside it.

    python benchmarks/search.py [--quick] [--json] [--calculon CHECKOUT]

Only legal plans count, each with its full step time and memory on every representative rank; no
plan is sampled or bounded away. Seconds are CPU seconds of one process with one thread. Each
measurement runs in a process of its own, so that its peak memory is its own. `--quick` takes an
eighth of the GPUs and of Calculon's sample.

Calculon (github.com/calculon-ai/calculon; needs pandas and psutil) is measured on a random sample
of its own enumeration of GPT-3 175B on 4096 A100-80 (seed 0, batch 1536), median of three passes of
`AllExecutions.search`. Exit status 1 when a figure misses its target.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

SPACES: dict[str, dict[str, Any]] = {
    "gpt3-175b": {"gpus": "A100-80GB:8", "nodes": 512, "seq_len": 2048, "global_batch": 1536},
    "deepseek-v3": {"gpus": "H800:8", "nodes": 256, "seq_len": 4096, "global_batch": 15360},
}
COLD = ("llama-3.1-70b", "mixtral-8x7b", "qwen3-235b-a22b")
ON_64 = ["--gpu", "H100:8", "--nodes", "8", "--seq-len", "4096", "--global-batch", "4Mtok"]
SAMPLE = 4000
QUICK = 8
TARGETS = {
    "plans_per_second": 1e6,
    "space_s": 10.0,
    "space_gib": 1.0,
    "plan_64_gpus_s": 1.0,
    "version_s": 0.1,
    "times_calculon": 2000.0,
}

CALCULON = """
import calculon, logging, random, statistics, sys, time
from calculon.llm.all_executions import AllExecutions
from calculon.llm.llm import Llm
from calculon.system import System
checkout, size = sys.argv[1], int(sys.argv[2])
app = Llm.Application(calculon.io.read_json_file(checkout + "/models/gpt3-175B.json"))
syst = System(calculon.io.read_json_file(checkout + "/systems/a100_80g.json"))
random.seed(0)
sample, count = [], 0
for count, one in enumerate(
    AllExecutions.all_executions(app, syst, 4096, 1536, "float16", [True]), start=1
):
    if len(sample) < size:
        sample.append(one)
    elif (place := random.randrange(count)) < size:
        sample[place] = one
times = []
for _ in range(3):
    start = time.process_time()
    good = len(AllExecutions.search(app, syst, sample))
    times.append(time.process_time() - start)
print(count, len(sample) / statistics.median(times), good / len(sample))
"""


def sweep_space(name: str, *, quick: bool) -> dict[str, Any]:
    """One exhaustive space: plans, CPU seconds, peak memory of this process."""
    from meshwright.api import cluster, load_model, options, workload
    from meshwright.plan.job import Job
    from meshwright.rules.rule import pruning_rules
    from meshwright.search.space import space
    from meshwright.search.sweep import Aim, sweep

    asked = SPACES[name]
    nodes = asked["nodes"] // (QUICK if quick else 1)
    model, gpus = load_model(name), cluster(asked["gpus"], nodes=nodes)
    work = workload(seq_len=asked["seq_len"], global_batch=asked["global_batch"])
    settings = options({}, {}, exhaustive=True)
    pruning_rules()
    start, wall = time.process_time(), time.perf_counter()
    the_space = space(model, gpus, work, settings)
    job = Job(model=model, cluster=gpus, workload=work, plan=settings.base)
    found = sweep(job, the_space, aim=Aim(limit_bytes=gpus.gpu.memory_bytes))
    seconds = time.process_time() - start
    return {
        "num_gpus": gpus.num_gpus,
        "candidates": found.candidates,
        "plans": found.costed,
        "feasible": found.feasible,
        "cpu_s": seconds,
        "wall_s": time.perf_counter() - wall,
        "plans_per_second": found.costed / seconds,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def in_own_process(name: str, *, quick: bool) -> dict[str, Any]:
    """`sweep_space` in a fresh process with one thread."""
    command = [sys.executable, __file__, "--space", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=one_thread({}))
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def one_thread(more: dict[str, str]) -> dict[str, str]:
    """The environment of a child that may use one thread."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, "1"), **more}


def cpu_s(arguments: list[str], *, times: int) -> float:
    """The least CPU seconds, imports included, of several runs of the command line."""
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "meshwright", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            env=one_thread({}),
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def calculon(checkout: str, *, quick: bool) -> dict[str, float]:
    """Calculon's plans a CPU second, the size of its space, the share of the sample that fits."""
    size = SAMPLE // (QUICK if quick else 1)
    path = os.pathsep.join(p for p in (checkout, os.environ.get("PYTHONPATH")) if p)
    done = subprocess.run(
        [sys.executable, "-c", CALCULON, checkout, str(size)],
        check=True,
        capture_output=True,
        text=True,
        env=one_thread({"PYTHONPATH": path}),
    )
    count, rate, fits = map(float, done.stdout.split())
    return {"plans": count, "plans_per_second": rate, "fits": fits, "sample": size}


def measure(*, quick: bool, checkout: str | None) -> dict[str, Any]:
    """Every figure."""
    spaces = {name: in_own_process(name, quick=quick) for name in SPACES}
    times = 1 if quick else 3
    report: dict[str, Any] = {
        "plans_per_second": min(space["plans_per_second"] for space in spaces.values()),
        "spaces": spaces,
        "plan_64_gpus_s": {m: cpu_s(["plan", m, *ON_64], times=times) for m in COLD},
        "version_s": cpu_s(["--version"], times=times + 2),
    }
    if checkout:
        report["calculon"] = calculon(checkout, quick=quick)
        mine = statistics.median(space["plans_per_second"] for space in spaces.values())
        report["times_calculon"] = mine / report["calculon"]["plans_per_second"]
    return report


def missed(report: dict[str, Any]) -> list[str]:
    """The targets that a report misses."""
    spaces = report["spaces"].items()
    at_most = {f"{n} seconds": (s["cpu_s"], TARGETS["space_s"]) for n, s in spaces}
    at_most |= {f"{n} GiB": (s["peak_gib"], TARGETS["space_gib"]) for n, s in spaces}
    cold = report["plan_64_gpus_s"].items()
    at_most |= {f"plan {m} seconds": (s, TARGETS["plan_64_gpus_s"]) for m, s in cold}
    at_most["--version seconds"] = (report["version_s"], TARGETS["version_s"])
    at_least = {n: report[n] for n in ("plans_per_second", "times_calculon") if n in report}
    wrong = [f"{n}: {v:.3g} > {most:g}" for n, (v, most) in at_most.items() if v > most]
    return wrong + [f"{n}: {v:.3g} < {TARGETS[n]:g}" for n, v in at_least.items() if v < TARGETS[n]]


def lines(report: dict[str, Any]) -> list[str]:
    """The report as text."""
    text = [
        f"{name} on {s['num_gpus']} GPUs: {s['plans']:,} plans in {s['cpu_s']:.2f} CPU s "
        f"({s['plans_per_second'] / 1e6:.2f} million/s), peak {s['peak_gib']:.2f} GiB, "
        f"{s['feasible']:,} fit, {s['candidates']:,} candidates"
        for name, s in report["spaces"].items()
    ]
    text += [f"plan {m} on 64 GPUs: {s:.2f} CPU s" for m, s in report["plan_64_gpus_s"].items()]
    text.append(f"--version: {1000 * report['version_s']:.0f} CPU ms")
    if "calculon" in report:
        c = report["calculon"]
        text.append(
            f"Calculon: {c['plans_per_second']:.0f} plans a CPU second, "
            f"its space {c['plans']:,.0f}; "
            f"meshwright does {report['times_calculon']:,.0f} times as many"
        )
    return text + [f"MISSED {what}" for what in missed(report)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--calculon", metavar="CHECKOUT")
    parser.add_argument("--space", choices=SPACES, help="this space alone, as JSON")
    asked = parser.parse_args()
    if asked.space:
        print(json.dumps(sweep_space(asked.space, quick=asked.quick)))
        return 0
    report = measure(quick=asked.quick, checkout=asked.calculon)
    print(json.dumps(report, indent=2) if asked.json else "\n".join(lines(report)))
    return 1 if missed(report) else 0


if __name__ == "__main__":
    sys.exit(main())
