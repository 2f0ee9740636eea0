"""Stages for tests of engines, in a module that workers can import."""

from __future__ import annotations

import os
import signal
import time

from meshwright.base.errors import InvalidInput, MeshwrightError
from meshwright.base.finding import Finding
from meshwright.data.stages.layout import Job
from meshwright.data.stages.plan import Stage


def run_note(job: Job, number: int) -> None:
    with job.store.writing("note", number, key="k") as draft:
        draft.write_text("who", f"{os.getpid()} {os.environ['RAYON_NUM_THREADS']}")


def run_fail(job: Job, number: int) -> None:
    errors: dict[int, Exception] = {
        1: InvalidInput([Finding(message="bad", file="a.jsonl", line=3)], hint="mend it"),
        2: MeshwrightError("cannot", hint="do this"),
        3: PermissionError(13, "Permission denied", "raw/a.jsonl"),
        4: KeyError("ours"),
    }
    if number in errors:
        raise errors[number]


def run_die(job: Job, number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_wait(job: Job, number: int) -> None:
    time.sleep(60)
    run_note(job, number)


def stage(make) -> Stage:
    name = make.__name__.removeprefix("run_")
    return Stage(name=name, make=make, key=lambda *_: "k", units=lambda _: {})
