"""How a rank hears that it is to stop, in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from meshwright.train.watch.signals import Stop

RANK = """
import sys, time
from meshwright.train.watch.signals import Stop
stop = Stop()
stop.listen()
print("ready", flush=True)
while not stop.asked:
    {busy}
print("asked", flush=True)
time.sleep(30)
"""
WAITING = "time.sleep(0.01)"
IN_C = "sum(range(3_000_000))"  # runs no Python handler meanwhile, and holds on to no lock for long


@pytest.fixture
def rank():
    started = []

    def start(busy=WAITING, before=""):
        process = subprocess.Popen(
            [sys.executable, "-c", before + RANK.format(busy=busy)],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("busy", [WAITING, IN_C])
@pytest.mark.parametrize("sign", [signal.SIGUSR1, signal.SIGTERM])
def test_the_first_signal_asks(rank, sign, busy):
    process = rank(busy)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(sign)
    assert process.stdout.readline() == "asked\n"
    assert process.poll() is None


def test_a_second_sigterm_ends_the_rank_at_once(rank):
    process = rank()
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 128 + signal.SIGTERM


def test_sigusr1_may_come_often(rank):
    process = rank()
    process.stdout.readline()
    for _ in range(3):
        process.send_signal(signal.SIGUSR1)
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)


def test_a_signal_before_it_listens_is_kept(rank):
    before = (
        "import os, signal\n"
        "from meshwright.train.watch.signals import HEARD\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
    )
    process = rank(before=before)
    assert process.stdout.read(12) == "ready\nasked\n"


def test_asking_needs_no_signal():
    stop = Stop()
    assert not stop.asked
    stop.ask()
    assert stop.asked
