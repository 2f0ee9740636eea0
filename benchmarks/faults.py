"""Faults: 20 kills at random moments, hangs, torn files, a full disk, another plan.

    python benchmarks/faults.py [--quick] [--json] [--seed N]

A tiny model is trained on synthetic data by `meshwright train` on two ranks, undisturbed, and then
again and again with faults. Moments are random: a step, and milliseconds into it. Kills (SIGKILL)
hit a rank, a rank again while it starts anew, torchrun's agent, the command itself (which is then
started again with --resume), or a rank while a checkpoint is being written. A hang is a rank that
is stopped (SIGSTOP). Torn are files of the newest checkpoint: cut, changed in one bit, emptied or
gone. The disk is a file system of its own that is filled up (needs root), then given room again.

Each fault must be survived: the run ends by itself with all steps done; metrics.jsonl has every
step once and every sample once, in the order of the undisturbed run; the weights of the last
checkpoint are equal bit for bit; no process is left. Under another plan or number of ranks the
losses after the resume are within 1e-5 of the undisturbed ones. Seconds are those from the fault to
the next step that was not made before. Exit status 1 when anything fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.train.launch.codes import PREEMPTED
from meshwright.train.watch.heart import STEP, Beat, beats_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS, EVERY, RANKS = 60, 3, 2
HANG_S = 4.0
PATIENCE_S = 300.0
TOLERANCE = 1e-5  # of losses, relative, under another plan
RANK, AGENT, COMMAND, SAVING, HANG = "rank", "agent", "command", "saving", "hang"
STARTING = "starting"
KILLS = [RANK] * 6 + [STARTING] * 2 + [AGENT] * 4 + [COMMAND] * 4 + [SAVING] * 4
TORN = ("cut", "bit", "empty", "gone", "no manifest")
PLANS = {
    "dp 2": "dp = 2\nzero_stage = 3",
    "tp 2": "tp = 2",
    "pp 2": "pp = 2\nschedule = '1f1b'",
    "1 rank": "dp = 1",
    "dp 2 x tp 2": "dp = 2\ntp = 2\nzero_stage = 3",
}
MODEL = """
[model]
model_type = "llama"
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
vocab_size = 128
max_position_embeddings = 64
[cluster]
gpu = "H100:{gpus}"
nodes = 1
[workload]
seq_len = 16
global_batch = 8
[plan]
precision = "fp32"
"""


@dataclass
class Result:
    """One fault and what came of it; `failure` is empty when it was survived."""

    kind: str
    detail: str = ""
    step: int = -1
    recovered_s: float | None = None
    failure: str = ""


@dataclass
class Course:
    """A run that is being disturbed."""

    folder: Path
    plan: Path
    options: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    seen: set[int] = field(default_factory=set)  # every process that was ever a rank

    def start(self) -> None:
        """Starts the command, or starts it again."""
        command = [sys.executable, "-m", "meshwright", "train", str(self.plan)]
        command += ["--data", "synthetic", "--steps", str(STEPS), "--out", str(self.folder)]
        command += ["--checkpoint-every", str(EVERY), "--seed", "5", "--device", "cpu", "--resume"]
        command += ["--max-restarts", "30", "--hang", str(HANG_S), "--grace", "60", *self.options]
        with self.folder.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def beats(self) -> dict[int, Beat]:
        """Beats of ranks that are alive."""
        beats = beats_in(self.folder / "logs" / "beats")
        self.seen |= {beat.pid for beat in beats.values()}
        return {rank: beat for rank, beat in beats.items() if is_alive(beat.pid)}

    def step(self, *, without: frozenset[int] = frozenset()) -> int:
        """The step that the run is in, -1 where it is in none; of other processes than these."""
        beats = [beat for beat in self.beats().values() if beat.pid not in without]
        return min(beat.step for beat in beats) if len(beats) > 1 else -1

    def starts(self, rank: int, *, after: int) -> bool:
        """Whether a rank has another process than before, in no step yet."""
        beat = self.beats().get(rank)
        return beat is not None and beat.pid != after and beat.phase != STEP

    def wait_for(self, reached: Callable[[], bool]) -> bool:
        """Whether something came true before the command ended or patience did."""
        end_s = time.monotonic() + PATIENCE_S
        while not reached():
            if self.process is None or self.process.poll() is not None:
                return False
            if time.monotonic() > end_s:
                return False
            time.sleep(0.002)
        return True

    def end(self) -> int | None:
        """Waits for the command; None when it had to be killed."""
        if self.process is None:
            return None
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None


def is_alive(pid: int) -> bool:
    """Whether a process runs and is no zombie."""
    return stat_of(pid)[:1] not in ([], ["Z"])


def stat_of(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


# Faults


def disturb(course: Course, kind: str, *, at: int, chance: random.Random) -> Result:
    """Commits one fault in step `at` or soon after it, and waits for the run to get beyond it."""
    result = Result(kind=kind, step=at)
    if not course.wait_for(lambda: course.step() >= at):
        result.failure = f"step {at} was not reached"
        return result
    if kind == SAVING and not course.wait_for(lambda: any(course.folder.glob("*.tmp"))):
        result.failure = "no checkpoint was being written"
        return result
    time.sleep(chance.uniform(0, 0.02 if kind == SAVING else 0.3))
    began_s = time.monotonic()
    result.step = max(course.step(), at)
    hit = frozenset(beat.pid for beat in course.beats().values())
    result.detail = commit(course, kind, chance)
    went_on = course.wait_for(lambda: course.step(without=hit) > result.step)
    if not went_on and not is_done(course):
        result.failure = f"no step after {result.step}"
    result.recovered_s = round(time.monotonic() - began_s, 2)
    return result


def is_done(course: Course) -> bool:
    """Whether the command has ended well."""
    return course.process is not None and course.process.poll() == 0


def commit(course: Course, kind: str, chance: random.Random) -> str:
    """The fault itself; what it hit."""
    beats = course.beats()
    if not beats or course.process is None:
        return "nothing was left to hit"
    rank = chance.choice(sorted(beats))
    pid = beats[rank].pid
    if kind == HANG:
        os.kill(pid, signal.SIGSTOP)
        return f"rank {rank} stopped"
    if kind == AGENT:
        os.kill(int(stat_of(pid)[1]), signal.SIGKILL)
        return "agent killed"
    if kind == COMMAND:
        course.process.kill()
        course.process.wait()
        course.start()
        return "command killed, started again"
    os.kill(pid, signal.SIGKILL)
    if kind == STARTING and course.wait_for(lambda: course.starts(rank, after=pid)):
        os.kill(course.beats()[rank].pid, signal.SIGKILL)
        return f"rank {rank} killed, and again at its start"
    return f"rank {rank} killed"


def trial(course: Course, kinds: list[str], *, chance: random.Random) -> list[Result]:
    """One run with several faults, spread over its steps."""
    course.start()
    share = STEPS // (len(kinds) + 1)
    results = []
    for index, kind in enumerate(kinds):
        at = 2 + index * share + chance.randrange(max(share - EVERY, 1))
        results.append(disturb(course, kind, at=at, chance=chance))
    code = course.end()
    if code != 0:
        results[-1].failure = results[-1].failure or f"the command ended with {code}"
    return results


# What must hold at the end


def checked(course: Course, whole: Path) -> str:
    """What is wrong with a run that has ended, beside the undisturbed one; "" when nothing is."""
    left = [pid for pid in course.seen if is_alive(pid)]
    if left:
        return f"{len(left)} processes are left"
    if samples(course.folder) != samples(whole):
        return "steps or samples differ from the undisturbed run"
    if digests(course.folder) != digests(whole):
        return "the weights differ from those of the undisturbed run"
    return ""


def metrics(folder: Path) -> list[dict[str, float]]:
    """Records of steps; none where the file is missing."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def samples(folder: Path) -> list[tuple[float, ...]]:
    """Of every step its number, its samples and the bits of its loss."""
    names = ("step", "first_sample", "last_sample", "loss")
    return [tuple(record[name] for name in names) for record in metrics(folder)]


def digests(folder: Path) -> dict[str, str]:
    """Of every file with tensors in the last checkpoint its digest."""
    files = sorted((folder / f"step-{STEPS}").glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


# Groups of trials


def kills(
    root: Path, plan: Path, whole: Path, *, chance: random.Random, quick: bool
) -> list[Result]:
    """Runs with four kills each, in random order; with `quick` one run with one kill of a kind."""
    kinds = [RANK, AGENT, COMMAND, SAVING] if quick else chance.sample(KILLS, len(KILLS))
    results = []
    for first in range(0, len(kinds), 4):
        course = Course(root / f"kills-{first}", plan)
        some = trial(course, kinds[first : first + 4], chance=chance)
        wrong = checked(course, whole)
        for result in some:
            result.failure = result.failure or wrong
        results += some
        told(*some)
    return results


def hangs(
    root: Path, plan: Path, whole: Path, *, chance: random.Random, quick: bool
) -> list[Result]:
    """A run with ranks that stop."""
    course = Course(root / "hangs", plan)
    results = trial(course, [HANG] * (1 if quick else 2), chance=chance)
    log = course.folder.with_suffix(".log").read_text()
    wrong = checked(course, whole)
    for result in results:
        rank = result.detail.split()[1]
        unnamed = "" if f"rank {rank} holds the others up" in log else "the rank was not named"
        result.failure = result.failure or wrong or unnamed
    told(*results)
    return results


def stopped(folder: Path, plan: Path, *, at: int) -> Course:
    """A run that was asked to stop in a step, saved, and ended."""
    course = Course(folder, plan)
    course.start()
    course.wait_for(lambda: course.step() >= at)
    if course.process is not None:
        course.process.terminate()
    code = course.end()
    if code != PREEMPTED:
        raise SystemExit(f"{folder.name}: asked to stop it ended with {code}, not {PREEMPTED}")
    return course


def torn(
    root: Path, plan: Path, whole: Path, *, chance: random.Random, quick: bool
) -> list[Result]:
    """Runs whose newest checkpoint is damaged before they go on."""
    first = stopped(root / "torn", plan, at=STEPS // 2)
    results = []
    for how in TORN[: 1 if quick else None]:
        course = Course(root / f"torn-{how.replace(' ', '-')}", plan)
        shutil.copytree(first.folder, course.folder)
        newest = max(course.folder.glob("step-*"), key=lambda path: int(path.name[5:]))
        tear(newest, how, chance)
        course.start()
        code = course.end()
        result = Result(kind="torn file", detail=how, step=int(newest.name[5:]))
        result.failure = "" if code == 0 else f"the command ended with {code}"
        result.failure = result.failure or checked(course, whole)
        results.append(result)
        told(result)
    return results


def tear(checkpoint: Path, how: str, chance: random.Random) -> None:
    """Damages one file of a checkpoint."""
    file = chance.choice(sorted(checkpoint.glob("*.safetensors")))
    data = bytearray(file.read_bytes())
    if how == "cut":
        file.write_bytes(data[: chance.randrange(1, len(data))])
    elif how == "bit":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "gone":
        file.unlink()
    else:
        (checkpoint / "manifest.json").unlink()


def full_disk(root: Path, plan: Path, whole: Path) -> list[Result]:
    """A run whose disk fills up, which then gets room again."""
    result = Result(kind="full disk")
    disk = root / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True).returncode:
        result.failure = "no file system of its own could be mounted: not tried"
        told(result)
        return [result]
    try:
        course = Course(disk / "run", plan, options=["--max-restarts", "1"])
        course.start()
        course.wait_for(lambda: course.step() >= STEPS // 3)
        result.step = course.step()
        fill(disk / "filler")
        code = course.end()
        said = "space" in course.folder.with_suffix(".log").read_text()
        result.detail = f"ended with {code}, then resumed"
        result.failure = "" if code not in (0, None) else "it did not notice"
        result.failure = result.failure or ("" if said else "it did not say why")
        (disk / "filler").unlink()
        course.start()
        code = course.end()
        result.failure = result.failure or ("" if code == 0 else f"resumed it ended with {code}")
        result.failure = result.failure or checked(course, whole)
    finally:
        subprocess.run(["umount", str(disk)], check=False)
    told(result)
    return [result]


def fill(path: Path) -> None:
    """Takes all the room that a file system has."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 65536):
                pass
        except OSError:
            return


def other_plans(root: Path, plan: Path, whole: Path, *, quick: bool) -> list[Result]:
    """A run that stops and goes on under other plans, with the losses of the first."""
    first = stopped(root / "first", plan, at=STEPS // 2)
    wanted = {record["step"]: record["loss"] for record in metrics(whole)}
    results = []
    for name in [name for name in PLANS if name != "dp 2"][: 2 if quick else None]:
        course = Course(root / f"plan-{name.replace(' ', '-')}", write_plan(root, name))
        shutil.copytree(first.folder, course.folder)
        course.start()
        code = course.end()
        records = metrics(course.folder)
        far = max(abs(r["loss"] - wanted[r["step"]]) / wanted[r["step"]] for r in records)
        result = Result(kind="other plan", detail=f"{name}, losses within {far:.1e}")
        result.failure = "" if code == 0 else f"the command ended with {code}"
        if [r[:3] for r in samples(course.folder)] != [r[:3] for r in samples(whole)]:
            result.failure = result.failure or "steps or samples differ"
        result.failure = result.failure or ("" if far <= TOLERANCE else "the losses differ")
        results.append(result)
        told(result)
    return results


def write_plan(root: Path, name: str) -> Path:
    """A plan.toml of the tiny model."""
    path = root / f"{name.replace(' ', '-')}.toml"
    gpus = 4 if "x" in name else 1 if name == "1 rank" else RANKS
    path.write_text(MODEL.format(gpus=gpus) + PLANS[name] + "\n")
    return path


# The whole


def told(*results: Result) -> None:
    """One line each, on stderr as they come."""
    for result in results:
        where = f"step {result.step:3d}" if result.step >= 0 else " " * 8
        took = "" if result.recovered_s is None else f"{result.recovered_s:6.2f} s"
        verdict = result.failure or "survived"
        print(
            f"{result.kind:10s} {where} {took:>9s}  {verdict}  ({result.detail})", file=sys.stderr
        )


def run(root: Path, *, quick: bool, seed: int) -> list[Result]:
    """All groups."""
    chance = random.Random(seed)
    plan = write_plan(root, "dp 2")
    whole = Course(root / "whole", plan)
    whole.start()
    if whole.end() != 0:
        raise SystemExit((root / "whole.log").read_text())
    return [
        *kills(root, plan, whole.folder, chance=chance, quick=quick),
        *hangs(root, plan, whole.folder, chance=chance, quick=quick),
        *torn(root, plan, whole.folder, chance=chance, quick=quick),
        *full_disk(root, plan, whole.folder),
        *other_plans(root, plan, whole.folder, quick=quick),
    ]


def summed(results: list[Result]) -> Iterator[str]:
    """One line a kind."""
    for kind in dict.fromkeys(result.kind for result in results):
        some = [result for result in results if result.kind == kind]
        good = sum(not result.failure for result in some)
        times = [r.recovered_s for r in some if r.recovered_s is not None and not r.failure]
        middle = f"  median {statistics.median(times):.1f} s to the next step" if times else ""
        yield f"{kind:10s} {good} of {len(some)}{middle}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="one fault of each kind")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        results = run(Path(root), quick=asked.quick, seed=asked.seed)
    survived = not any(result.failure for result in results)
    if asked.json:
        print(json.dumps({"survived": survived, "faults": [asdict(r) for r in results]}, indent=1))
    else:
        print("\n".join(summed(results)))
    return 0 if survived else 1


if __name__ == "__main__":
    sys.exit(main())
