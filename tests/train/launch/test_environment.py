"""What ranks find in their environment, and the pipes of the flight recorder."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from meshwright.train.launch.dumps import ask_for_dumps, recorder_environment
from meshwright.train.launch.environment import rank_environment, threads_per_rank, usable_cores

LOGS = Path("/logs")


def environment(inherited=None, own=None, *, ranks=2, nodes=1):
    return rank_environment(inherited or {}, own or {}, ranks=ranks, nodes=nodes, log_folder=LOGS)


def test_ranks_that_start_again_do_not_share_the_agent_s_store():
    inherited = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}
    assert environment(inherited)["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_what_the_user_has_set_is_kept_and_what_the_caller_sets_counts_most():
    made = environment({"OMP_NUM_THREADS": "7", "A": "1"}, {"A": "2"})
    assert (made["OMP_NUM_THREADS"], made["A"]) == ("7", "2")


def test_only_a_single_node_is_kept_to_itself():
    assert environment(nodes=1)["GLOO_SOCKET_IFNAME"] in ("lo", "lo0")
    assert "GLOO_SOCKET_IFNAME" not in environment(nodes=2)


@given(cores=st.integers(1, 512), ranks=st.integers(1, 512))
def test_threads_never_exceed_the_cores_unless_ranks_do(cores, ranks):
    threads = threads_per_rank(ranks, cores=cores)
    assert threads >= 1
    assert threads * ranks <= max(cores, ranks)
    assert (threads + 1) * ranks > cores


def test_threads_are_those_of_this_machine_by_default():
    assert environment(ranks=1)["OMP_NUM_THREADS"] == str(usable_cores())


def test_ranks_that_listen_are_asked_for_their_records(tmp_path):
    stem = recorder_environment(tmp_path)["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
    os.mkfifo(f"{stem}1.pipe")
    os.mkfifo(f"{stem}2.pipe")
    listening = os.open(f"{stem}1.pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        ask_for_dumps(tmp_path, [0, 1, 2])
        assert os.read(listening, 10) == b"1"
    finally:
        os.close(listening)
