"""A worker to supervise: counts steps in an all-reduce, keeps the count, and fails as it is told.

Arguments: folder, steps, and what goes wrong, as "kill:1:3" (rank 1 kills itself in step 3).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from meshwright.train.guard import Diverged
from meshwright.train.launch.codes import PREEMPTED
from meshwright.train.watch.heart import Heart
from meshwright.train.watch.signals import Stop


def main(arguments: list[str]) -> int:
    folder, steps, *faults = arguments
    rank, attempt = int(os.environ["RANK"]), int(os.environ["MESHWRIGHT_ATTEMPT"])
    stop = Stop()
    stop.listen()
    heart = Heart.here()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for step in range(steps_noted(folder), int(steps)):
        heart.step(step)
        for fault in faults:
            commit(fault, rank, step, attempt)
        total = torch.tensor([1.0, float(stop.asked)])
        dist.all_reduce(total)
        if rank == 0:
            note(folder, f"{attempt} {step} {int(total[0])}")
        if total[1]:
            return PREEMPTED
    if rank == 0:
        note(folder, "done")
    return 0


def steps_noted(folder: str) -> int:
    """Where to go on: a step counts once its note is there, at whatever moment a rank is killed."""
    notes = Path(folder) / "notes"
    lines = notes.read_text().split("\n")[:-1] if notes.exists() else []
    return sum(line.count(" ") == 2 for line in lines)


def commit(fault: str, rank: int, step: int, attempt: int) -> None:
    kind, who, when = fault.split(":")
    if step != int(when) or int(who) not in (rank, -1):
        return
    if kind == "sleep":
        time.sleep(0.2)
    if kind == "refuse":
        sys.exit(2)
    if kind == "diverge":
        raise Diverged("loss nan at step 1", hint="lower the learning rate")
    if kind == "always":
        raise RuntimeError("this step never works")
    if attempt:
        return
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "kill-agent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(30)
    if kind == "raise":
        raise RuntimeError("a made fault")
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "sleep-long":
        time.sleep(60)


def note(folder: str, line: str) -> None:
    with (Path(folder) / "notes").open("a") as file:
        file.write(line + "\n")
    print(line)
