"""Real ranks on gloo that are killed, frozen and stopped, and what the supervisor makes of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from meshwright.base.errors import MeshwrightError
from meshwright.train.launch import event, lock
from meshwright.train.launch.codes import DONE, FAILED, INTERRUPTED, PREEMPTED, REFUSED
from meshwright.train.launch.local import supervise
from meshwright.train.launch.processes import alive, gone_within
from meshwright.train.watch.lag import Limits

pytest.importorskip("torch")

HERE = Path(__file__).parent
FOREVER = 1_000_000


class Told:
    """Events as they come, and every process that was ever a rank."""

    def __init__(self, then=None):
        self.events = []
        self.pids = set()
        self.then = then or {}

    def __call__(self, happened):
        self.events.append(happened)
        self.pids |= set(happened.pids.values())
        if happened.kind in self.then:
            self.then.pop(happened.kind)(happened)

    def of(self, kind):
        return [e for e in self.events if e.kind == kind]


def run(folder, *arguments, told=None, **options):
    told = told or Told()
    code = supervise(
        ["made_worker", str(folder), *map(str, arguments)],
        log_folder=folder / "logs",
        environment={"PYTHONPATH": str(HERE), "GLOO_SOCKET_IFNAME": "lo"},
        on_event=told,
        **({"ranks_per_node": 2} | options),
    )
    assert not [pid for pid in told.pids if alive(pid)]
    return code, told


def steps_done(folder):
    """How often each step was made."""
    notes = (folder / "notes").read_text().split("\n")
    return Counter(int(line.split()[1]) for line in notes if line.count(" ") == 2)


def once(steps):
    return dict.fromkeys(range(steps), 1)


def test_ranks_that_go_well_are_started_once(tmp_path):
    code, told = run(tmp_path, 3)
    assert code == DONE
    assert steps_done(tmp_path) == once(3)
    assert not told.of(event.RESTARTING)
    assert "done" in "".join(e.text for e in told.of(event.LINE))


def test_a_killed_rank_is_named_and_the_run_goes_on(tmp_path):
    code, told = run(tmp_path, 6, "kill:1:3")
    assert code == DONE
    assert steps_done(tmp_path) == once(6)
    (failed,) = told.of(event.FAILED)
    assert (failed.rank, failed.code) == (1, -signal.SIGKILL)
    (again,) = told.of(event.RESTARTING)
    assert again.attempt == 1
    assert (tmp_path / "logs/attempt-1/rank-1.log").exists()


def test_what_a_failing_rank_wrote_last_is_shown(tmp_path):
    code, told = run(tmp_path, 6, "raise:1:2")
    assert code == DONE
    (failed,) = told.of(event.FAILED)
    assert (failed.rank, failed.code) == (1, 1)
    assert failed.lines[-1] == "RuntimeError: a made fault"


def test_a_killed_agent_takes_its_ranks_along_and_is_replaced(tmp_path):
    code, told = run(tmp_path, 6, "kill-agent:1:3")
    assert code == DONE
    assert steps_done(tmp_path) == once(6)
    (lost,) = told.of(event.AGENT_LOST)
    assert lost.code == -signal.SIGKILL


def test_the_last_words_of_an_agent_that_fails_are_shown(tmp_path):
    told = Told()
    code = supervise(
        ["no_such_worker"],
        log_folder=tmp_path / "logs",
        ranks_per_node=1,
        max_restarts=0,
        on_event=told,
    )
    assert code == FAILED
    (lost,) = told.of(event.AGENT_LOST)
    assert lost.lines[-1] == "ModuleNotFoundError: No module named 'no_such_worker'"


def test_the_rank_that_stands_still_is_named_with_the_collective_of_the_others(tmp_path):
    limits = Limits(step_s=5.0, phase_s=60.0)  # beats name a collective after 2 s
    code, told = run(tmp_path, 6, "stop:1:3", ranks_per_node=3, limits=limits)
    assert code == DONE
    assert steps_done(tmp_path) == once(6)
    (hang,) = told.of(event.HANG)
    assert hang.text == "rank 1 holds the others up"
    assert "all_reduce called at made_worker.py" in hang.lines[0]
    assert not told.of(event.FAILED)
    assert "in main" in (tmp_path / "logs/attempt-0/rank-0.log").read_text()  # its stack


def test_a_fault_that_comes_back_ends_the_run(tmp_path):
    code, told = run(tmp_path, 6, "always:0:2", max_restarts=1)
    assert code == FAILED
    assert len(told.of(event.FAILED)) == 2
    assert steps_done(tmp_path) == once(2)


def test_wrong_input_is_not_tried_again(tmp_path):
    code, told = run(tmp_path, 6, "refuse:0:1")
    assert code == REFUSED
    assert not told.of(event.RESTARTING)


def test_a_loss_that_is_no_number_is_not_tried_again(tmp_path):
    code, told = run(tmp_path, 6, "diverge:-1:1")
    assert code == REFUSED
    assert not told.of(event.RESTARTING)
    assert "error: loss nan at step 1" in told.of(event.FAILED)[0].lines


def ask(sign):
    return lambda _event: os.kill(os.getpid(), sign)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_all_ranks_end_after_the_same_step_and_can_go_on(tmp_path, sign):
    told = Told({event.LINE: ask(sign)})
    code, _ = run(tmp_path, FOREVER, told=told)
    assert code == PREEMPTED
    assert len(told.of(event.STOPPING)) == 1
    made = steps_done(tmp_path)
    assert made == once(len(made))
    assert signal.getsignal(sign) in (signal.SIG_DFL, signal.default_int_handler)
    assert run(tmp_path, len(made) + 2)[0] == DONE
    assert steps_done(tmp_path) == once(len(made) + 2)


def test_a_second_signal_ends_everything_at_once(tmp_path):
    told = Told({event.LINE: ask(signal.SIGTERM), event.STOPPING: ask(signal.SIGTERM)})
    code, _ = run(tmp_path, FOREVER, "sleep-long:-1:5", told=told)
    assert code == INTERRUPTED


def test_ranks_that_do_not_stop_are_ended_after_their_grace(tmp_path):
    told = Told({event.LINE: ask(signal.SIGTERM)})
    code, _ = run(tmp_path, FOREVER, "sleep-long:-1:1", told=told, grace_s=1.0)
    assert code == PREEMPTED


SUPERVISE = """
import json, sys
from meshwright.train.launch.local import supervise
folder, node, nodes, endpoint, logs, *worker = sys.argv[1:]
told = lambda e: print(json.dumps([e.kind, list(e.pids.values()), e.text]), flush=True)
sys.exit(supervise(
    ["made_worker", folder, *worker], ranks_per_node=2, nodes=int(nodes), node_rank=int(node),
    endpoint=endpoint, run="a", log_folder=logs, on_event=told,
    environment={"GLOO_SOCKET_IFNAME": "lo"},
))
"""


def in_a_process(folder, *worker, node=0, nodes=1, endpoint=""):
    arguments = [folder, node, nodes, endpoint, folder / "logs", *worker]
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE)},
    )


def test_nothing_outlives_a_killed_supervisor(tmp_path):
    process = in_a_process(tmp_path, FOREVER)
    pids = []
    for line in process.stdout:
        kind, here, _ = json.loads(line)
        pids += here
        if kind == event.LINE:
            break
    process.kill()
    process.wait()
    process.stdout.close()
    assert len(pids) == 2
    assert gone_within([(pid, "") for pid in pids], 5.0)
    made = steps_done(tmp_path)
    assert run(tmp_path, max(made) + 3)[0] == DONE
    assert set(steps_done(tmp_path)) == set(range(max(made) + 3))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("fault", ["kill:3:3", "kill-agent:0:3"])
def test_two_nodes_go_on_together(tmp_path, fault):
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [
        in_a_process(tmp_path, 6, fault, node=node, nodes=2, endpoint=endpoint) for node in (0, 1)
    ]
    told = [
        [json.loads(line) for line in node.communicate(timeout=120)[0].split("\n") if line]
        for node in nodes
    ]
    assert [node.returncode for node in nodes] == [DONE, DONE]
    assert set(steps_done(tmp_path)) == set(range(6))
    for events in told:
        assert [kind for kind, *_ in events].count(event.RESTARTING) == 1
    with_lines = [
        node
        for node, events in enumerate(told)
        if event.LINE in dict.fromkeys(e[0] for e in events)
    ]
    assert with_lines == [0]  # rank 0 is on node 0, whatever the order of names and processes


def test_two_nodes_of_one_number_are_refused(tmp_path):
    endpoint = f"127.0.0.1:{free_port()}"
    nodes = [
        in_a_process(tmp_path / str(i), 2, node=node, nodes=3, endpoint=endpoint)
        for i, node in enumerate((0, 1, 1))
    ]
    codes = []
    end_s = time.monotonic() + 120
    while not codes and time.monotonic() < end_s:
        codes = [node.returncode for node in nodes if node.poll() is not None]
        time.sleep(0.1)
    for node in nodes:
        node.kill()
        node.communicate()
    assert REFUSED in codes
    logs = "".join(path.read_text() for path in tmp_path.glob("*/logs/agent-1.log"))
    assert "two nodes call themselves node 1" in logs


def test_several_nodes_need_a_place_to_meet(tmp_path):
    with pytest.raises(MeshwrightError, match="2 nodes cannot find each other"):
        supervise(["worker"], ranks_per_node=1, nodes=2, log_folder=tmp_path)


def test_a_folder_is_for_one_run_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "PATIENCE_S", 0.1)
    with (
        lock.held(tmp_path / "logs/lock-0"),
        pytest.raises(MeshwrightError, match="another run is at work"),
    ):
        supervise(["worker"], ranks_per_node=1, log_folder=tmp_path / "logs")


def test_a_worker_that_cannot_be_imported_fails_with_the_reason(tmp_path):
    code = supervise(["no_such_module"], ranks_per_node=1, log_folder=tmp_path, max_restarts=0)
    assert code == FAILED
    assert "No module named 'no_such_module'" in (tmp_path / "agent-0.log").read_text()


def test_in_another_thread_it_hears_no_signals_and_works_as_well(tmp_path):
    codes = []
    thread = threading.Thread(target=lambda: codes.append(run(tmp_path, 2)[0]))
    thread.start()
    thread.join()
    assert codes == [DONE]


def test_a_broken_pipe_of_who_listens_ends_no_run(tmp_path):
    def broken(_event):
        raise BrokenPipeError

    code, _ = run(tmp_path, 3, told=Told({event.LINE: broken}))
    assert code == DONE
    assert steps_done(tmp_path) == once(3)


def test_new_interpreters_are_started_where_asked(tmp_path):
    code, told = run(tmp_path, 4, "kill:0:2", start="execute", ranks_per_node=1)
    assert code == DONE
    assert steps_done(tmp_path) == once(4)
    assert len(told.of(event.RESTARTING)) == 1


def test_an_agent_that_is_frozen_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.train.launch.supervisor._FROZEN_S", 0.5)

    def freeze(happened):
        parent = Path(f"/proc/{happened.pids[0]}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), signal.SIGSTOP)
        time.sleep(0.2)

    told = Told({event.RANKS: freeze})
    code, _ = run(tmp_path, 200, "sleep:0:-1", told=told)
    assert code == DONE
    assert len(told.of(event.AGENT_LOST)) <= 1
    assert set(steps_done(tmp_path)) == set(range(200))
