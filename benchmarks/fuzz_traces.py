"""Mutates traces and diagnoses them: crashes, negative times, wrong sums, slowest file, memory.

    python benchmarks/fuzz_traces.py --seconds 300
    python benchmarks/fuzz_traces.py --traces ../shared/traces --seed 7 --json

Each text is a trace cut to some events, written in one of the layouts that are met, and broken by
bytes, by tokens or by structure; one in four is compressed, and may be cut after that. It is read,
accounted for, judged and reported in this process, as `meshwright diagnose` does. What must hold:
no exception but the package's own, no time below zero, parts that sum to their window. Runs are
repeatable: mutations hang on `--seed` alone (how many are run, on the machine).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.api import diagnosing
from meshwright.api.diagnosing.worker import Answer, rank_at
from meshwright.base.errors import MeshwrightError
from meshwright.diagnose.trace.read import read_trace
from meshwright.report.diagnosis.page import diagnosis_page
from meshwright.report.diagnosis.perfetto import perfetto_json
from meshwright.report.diagnosis.record import diagnosis_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshwright.diagnose.rank import Attribution, Rank, Unions

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "tests" / "traces" / "made"
EVENTS = 400  # of a seed; enough for some steps of a small trace
TOO_SLOW_S = 10.0
SUM_US = 1e-3  # parts are floats of exact nanoseconds
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 7, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, -0.001, 1e300, 1e-300, "",
    "x", "7", "-3", "1712195495502094.453", "NaN", [], [1, "a"], {}, {"a": {"b": []}}, "<b>",
    "\x1b[2J",
    "é" * 50, "ncclDevKernel_AllReduce_Sum_f32", "ProfilerStep#1", "x" * 5000,
)  # fmt: skip
WORDS = (
    b"NaN", b"-Infinity", b"null", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\x00",
    b"\xff", b'{"ph": "X"}', b"},\n  {", b'"ts": -5', b'"dur": 1e400', b'"dur": -1',
    b"1e999999999",
    b"\\ud800", b'"traceEvents": [', b"]}", b"\x1f\x8b", b"\r\n", b'"args": {', b"0" * 400,
)  # fmt: skip
KEYS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id", "Seq", "Group size", "dtype")


@dataclass
class Outcome:
    """What fuzzing came to."""

    executions: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    peak_mib: float = 0.0
    growth_mib: float = 0.0
    faults: list[dict[str, str]] = field(default_factory=list)


def seeds_of(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Traces as dictionaries, those that are JSON."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*.json*")):
            raw = path.read_bytes()
            if path.name == "expected.json" or len(raw) > 2_000_000:
                continue
            try:
                text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
                held = json.loads(text)
            except (ValueError, EOFError):
                continue
            held = {"traceEvents": held} if isinstance(held, list) else held
            if isinstance(held.get("traceEvents"), list):
                found.append(held)
    return found


def cut(trace: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Some of a trace's events: a stretch, or each so-and-so-manyth."""
    events = trace["traceEvents"]
    if dice.random() < 0.5:
        start = dice.randrange(max(1, len(events) - EVENTS))
        chosen = events[start : start + EVENTS]
    else:
        chosen = events[dice.randrange(3) :: max(1, len(events) // EVENTS)]
    return trace | {"traceEvents": [dict(e) for e in chosen if isinstance(e, dict)]}


def by_structure(trace: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Values of events and metadata replaced, left out, moved or doubled."""
    events = trace["traceEvents"]
    for _ in range(dice.choice((0, 0, 1, 3, 30))):
        if not events:
            break
        at = dice.randrange(len(events))
        event = events[at]
        kind = dice.randrange(7)
        if kind == 0 and isinstance(event, dict):
            event[dice.choice([*event, *KEYS])] = dice.choice(VALUES)
        elif kind == 1 and isinstance(event, dict) and isinstance(event.get("args"), dict):
            args = dict(event["args"])
            args[dice.choice([*args, *KEYS])] = dice.choice(VALUES)
            event["args"] = args
        elif kind == 2 and isinstance(event, dict) and event:
            event.pop(dice.choice(list(event)))
        elif kind == 3:
            events[at] = dice.choice(VALUES)
        elif kind == 4:
            events += [event] * dice.randint(1, 20)
        elif kind == 5:
            dice.shuffle(events)
        elif isinstance(event, dict):
            event["ts"] = dice.choice((0, -1e6, 1e15, 4e15, 1e12, 1712195495502094.453))
    if dice.random() < 0.2:
        key = dice.choice([*trace, "distributedInfo", "deviceProperties", "meshwright"])
        trace = trace | {key: dice.choice(VALUES)}
    return trace


def written(trace: dict[str, Any], dice: random.Random) -> bytes:
    """The trace as text in one of the layouts."""
    events, rest = trace["traceEvents"], {k: v for k, v in trace.items() if k != "traceEvents"}
    kind = dice.randrange(6)
    if not isinstance(events, list) or kind == 0:
        return json.dumps(trace).encode()
    if kind == 1:
        return json.dumps(events, separators=(",", ":")).encode()
    if kind == 2:
        return json.dumps(trace, indent=dice.choice((1, 2, 4))).encode()
    if kind == 3:
        return json.dumps({"traceEvents": events} | rest, ensure_ascii=False).encode(
            "utf-8", "replace"
        )
    lines = ",\n  ".join("{\n    " + json.dumps(e)[1:-1] + "\n  }" for e in events)
    head = ",\n  ".join(f'"{k}": {json.dumps(v)}' for k, v in rest.items())
    return f'\n{{\n  {head},\n  "traceEvents": [\n  {lines}\n  ]\n}}'.encode()


def by_bytes(text: bytes, dice: random.Random) -> bytes:
    """The text with stretches and words lost, doubled, put in and replaced."""
    for _ in range(dice.choice((0, 0, 1, 1, 2, 8, 60))):
        at = dice.randrange(len(text) + 1)
        long = dice.choice((1, 1, 4, 40, 400, 40_000))
        kind = dice.randrange(5)
        if kind == 0:
            text = text[:at] + text[at + long :]
        elif kind == 1:
            text = text[:at] + text[max(0, at - long) : at] + text[at:]
        elif kind == 2:
            text = text[:at] + dice.choice(WORDS) + text[at:]
        elif kind == 3:
            text = text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :]
        elif dice.random() < 0.1:
            text = text[:at]
    return text


def packed(text: bytes, dice: random.Random) -> bytes:
    """The text, one in four times compressed, and then it may be damaged."""
    if dice.random() < 0.75:
        return text
    raw = gzip.compress(text, 1)
    kind = dice.randrange(5)
    if kind == 0:
        return raw[: dice.randrange(len(raw))]
    if kind == 1:
        return by_bytes(raw, dice)
    return raw + raw if kind == 2 else raw


def check_columns(path: Path) -> None:
    """Times of the columns are in order and none is below zero."""
    trace = read_trace(path)
    for table in (trace.device, trace.calls, trace.operators):
        start, end = table.start_ns, table.end_ns
        _must(bool(np.all(end >= start)), "an event ends before it starts")
        _must(bool(np.all(start[1:] >= start[:-1])), "rows are not in order")
        _must(len(start) == 0 or bool(start[0] >= 0), "an event starts before the origin")


def check_rank(rank: Rank) -> None:
    """No time is below zero and all sums are those of their windows."""
    for window in (rank.gpu_span, rank.step_window, *rank.per_step):
        if window is not None:
            _check_unions(window)
    for attribution in (rank.attribution, *rank.step_attributions):
        if attribution is not None:
            _check_attribution(attribution)


def _check_unions(window: Unions) -> None:
    slack = SUM_US + 1e-12 * abs(window.window_us)
    for name in ("window_us", "compute_us", "comm_us", "memory_us", "busy_us", "idle_us"):
        _must(getattr(window, name) >= 0, f"{name} is below zero")
    for name in ("exposed_comm_us", "exposed_memory_us", "overlap_comm_compute_us"):
        _must(getattr(window, name) >= 0, f"{name} is below zero")
    parts = window.compute_us + window.exposed_comm_us + window.exposed_memory_us
    _must(abs(parts - window.busy_us) <= slack, "parts are not the busy time")
    _must(abs(window.busy_us + window.idle_us - window.window_us) <= slack, "sum of a window")


def _check_attribution(found: Attribution) -> None:
    slack = SUM_US + 1e-12 * abs(found.window_us)
    _must(all(part >= 0 for part in found.parts_us.values()), "a part is below zero")
    _must(abs(sum(found.parts_us.values()) - found.window_us) <= slack, "parts are not the window")


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def in_this_process(paths: Sequence[Path], **_: Any) -> list[Answer]:
    """Ranks of files, without processes that would hide what happens."""
    found = []
    for path in paths:
        try:
            found.append(Answer(file=str(path), rank=rank_at(path)))
        except MeshwrightError as error:
            found.append(Answer(file=str(path), error=error.message, hint=error.hint))
    return found


def diagnosed(paths: list[Path]) -> None:
    """Everything that `meshwright diagnose` does; raises where something does not hold."""
    found = diagnosing.diagnose(paths)
    for rank in found.evidence.ranks:
        check_rank(rank)
    json.dumps(diagnosis_record(found), allow_nan=False)
    diagnosis_page(found)
    json.loads(perfetto_json(found))


def texts(seeds: Sequence[dict[str, Any]], dice: random.Random) -> Iterator[list[bytes]]:
    """One or two mutated traces at a time, for ever."""
    while True:
        many = dice.choice((1, 1, 1, 2))
        chosen = [cut(dice.choice(seeds), dice) for _ in range(many)]
        yield [packed(by_bytes(written(by_structure(t, dice), dice), dice), dice) for t in chosen]


def fuzz(seeds: Sequence[dict[str, Any]], *, seconds: float, seed: int, keep: Path) -> Outcome:
    outcome, dice = Outcome(), random.Random(seed)
    before, start = peak_mib(), time.perf_counter()
    diagnosing.answers = in_this_process  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        for made in texts(seeds, dice):
            if time.perf_counter() - start > seconds:
                break
            paths = [Path(folder, f"rank{n}.json") for n in range(len(made))]
            for path, text in zip(paths, made, strict=True):
                path.write_bytes(text)
            began = time.process_time()
            _run(outcome, paths, made, keep)
            outcome.slowest_s = max(outcome.slowest_s, time.process_time() - began)
            outcome.executions += 1
    outcome.seconds = time.perf_counter() - start
    outcome.peak_mib = peak_mib()
    outcome.growth_mib = outcome.peak_mib - before
    return outcome


def _run(outcome: Outcome, paths: list[Path], made: list[bytes], keep: Path) -> None:
    """Diagnoses files; keeps those that show a fault."""
    verbs: tuple[Callable[[], None], ...] = (
        lambda: check_columns(paths[0]),
        lambda: diagnosed(paths),
    )
    for verb in verbs:
        try:
            verb()
        except MeshwrightError:
            outcome.refused += 1
        except Exception:
            told = traceback.format_exc()
            if len(outcome.faults) < 50:
                keep.mkdir(parents=True, exist_ok=True)
                name = f"fault-{len(outcome.faults)}"
                for number, text in enumerate(made):
                    (keep / f"{name}-rank{number}.json").write_bytes(text)
                outcome.faults.append({"file": name, "error": told[-1500:]})


def peak_mib() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--quick", action="store_true", help="5 seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--traces", type=Path, default=ROOT.parent / "shared" / "traces")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"), help="files with faults")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    seeds = seeds_of([p for p in (MADE, options.traces) if p.is_dir()])
    seconds = 5.0 if options.quick else options.seconds
    outcome = fuzz(seeds, seconds=seconds, seed=options.seed, keep=options.keep)
    if options.json:
        print(json.dumps(asdict(outcome), indent=2))
    else:
        print(
            f"{len(seeds)} seeds, {outcome.executions:,} runs, {outcome.refused:,} refused,"
            f" {len(outcome.faults)} faults, slowest {outcome.slowest_s:.2f} s,"
            f" peak {outcome.peak_mib:.0f} MiB (+{outcome.growth_mib:.0f}), {outcome.seconds:.0f} s"
        )
        for fault in outcome.faults[:10]:
            print(f"    {fault['file']}\n{fault['error']}")
    return 1 if outcome.faults or outcome.slowest_s > TOO_SLOW_S else 0


if __name__ == "__main__":
    sys.exit(main())
