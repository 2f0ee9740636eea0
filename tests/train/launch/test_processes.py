"""Processes that end with others, and only those that are meant."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from meshwright.train.launch import processes
from meshwright.train.launch.processes import (
    adopting,
    alive,
    gone_within,
    kill,
    kill_adopted,
    kill_session,
    started_at,
    state,
)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="prctl and /proc")
SLEEPS = "import time; time.sleep(60)"
CHILD_OF_CHILD = """
import subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", {inner!r}], start_new_session={apart})
print(inner.pid, flush=True)
time.sleep(60)
"""
DIES_WITH = """
import os, time
from meshwright.train.launch.processes import die_with
die_with(os.getppid())
time.sleep(60)
"""


@pytest.fixture
def started():
    """Starts Python processes, and ends them in the end."""
    processes = []

    def start(code, **options):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@linux
def test_a_child_dies_with_its_parent(started):
    parent = started(CHILD_OF_CHILD.format(inner=DIES_WITH, apart=False))
    inner = int(parent.stdout.readline())
    time.sleep(0.5)
    assert alive(inner)
    parent.kill()
    parent.wait()
    assert gone_within([(inner, "")], 5)


@linux
def test_a_child_whose_parent_has_gone_already_ends_at_once(started):
    code = (
        "from meshwright.train.launch.processes import die_with; die_with(1 << 30); print('lives')"
    )
    process = started(code)
    assert process.wait(30) == 1
    assert process.stdout.read() == ""


def test_a_process_ends_when_the_pipe_is_closed(started):
    reader, writer = os.pipe()
    code = (
        "import time\nfrom meshwright.train.launch.processes import die_with_pipe\n"
        f"die_with_pipe({reader})\nprint('ready', flush=True)\ntime.sleep(60)"
    )
    process = started(code, pass_fds=[reader])
    os.close(reader)
    assert process.stdout.readline() == "ready\n"
    assert process.poll() is None
    os.close(writer)
    assert process.wait(10) == 1


@linux
def test_only_the_process_that_was_started_then_is_killed(started):
    process = started(SLEEPS)
    since = started_at(process.pid)
    kill([(process.pid, "1")])
    time.sleep(0.1)
    assert process.poll() is None
    assert not alive(process.pid, since="1")
    kill([(process.pid, since)])
    assert process.wait(10) == -signal.SIGKILL
    assert not alive(process.pid)
    kill([(process.pid, since)])


@linux
def test_a_zombie_does_not_live(started):
    process = started(SLEEPS)
    process.send_signal(signal.SIGKILL)
    assert gone_within([(process.pid, "")], 5)
    assert state(process.pid) == "Z"


@linux
def test_a_session_is_killed_whole(started):
    leader = started(CHILD_OF_CHILD.format(inner=SLEEPS, apart=False), start_new_session=True)
    inner = int(leader.stdout.readline())
    kill_session(leader.pid)
    assert leader.wait(10) == -signal.SIGKILL
    assert gone_within([(inner, "")], 5)


@linux
def test_orphans_are_adopted_and_ended_with_their_session(started):
    with adopting():
        parent = started(CHILD_OF_CHILD.format(inner=SLEEPS, apart=True))
        inner = int(parent.stdout.readline())
        own = started(SLEEPS)
        parent.kill()
        parent.wait()
        kill_adopted({inner}, within_s=5)
        assert not alive(inner)
        assert own.poll() is None


@linux
def test_a_name_with_brackets_hides_no_state(started):
    process = started(
        "import ctypes; ctypes.CDLL(None).prctl(15, b'a) Z (', 0, 0, 0)\nprint(1, flush=True)\n"
        + SLEEPS
    )
    process.stdout.readline()
    assert state(process.pid) in "SR"


def test_a_process_that_never_was_is_not_alive():
    assert not alive(1 << 30)
    assert started_at(1 << 30) == ""
    assert processes.gone_within([(1 << 30, "")], 0)
