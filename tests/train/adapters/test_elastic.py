"""What the agent takes from torch's elastic package is still as it was in 2.13."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from dataclasses import fields

import pytest

pytest.importorskip("torch")

from torch.distributed.elastic.agent.server.api import (
    RunResult,
    SimpleElasticAgent,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters, RendezvousStoreInfo

from meshwright.train.adapters.elastic import _ended


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_the_hooks_that_the_agent_overrides():
    assert parameters(LocalElasticAgent._start_workers) == ["self", "worker_group"]
    assert parameters(LocalElasticAgent._monitor_workers) == ["self", "worker_group"]
    assert parameters(SimpleElasticAgent._rendezvous) == ["self", "worker_group"]
    assert parameters(RendezvousStoreInfo.build)[:3] == ["rank", "store", "local_addr"]
    assert SimpleElasticAgent._monitor_workers.__isabstractmethod__
    assert SimpleElasticAgent._start_workers.__isabstractmethod__


def test_the_base_class_still_restarts_by_itself():
    loop = inspect.getsource(SimpleElasticAgent._invoke_run)
    for word in (
        "_monitor_workers",
        "_remaining_restarts",
        "_restart_workers",
        "num_nodes_waiting",
    ):
        assert word in loop


def test_the_base_class_still_counts_and_keeps_what_is_read():
    assert "_remaining_restarts" in inspect.getsource(SimpleElasticAgent.__init__)
    assert "_worker_group" in inspect.getsource(SimpleElasticAgent.__init__)
    assert "_pcontext" in inspect.getsource(LocalElasticAgent.__init__)
    assert parameters(PContext.pids) == ["self"]


def test_what_is_made_of_torch_s_nouns():
    assert {"state", "return_values", "failures"} <= {f.name for f in fields(RunResult)}
    assert [f.name for f in fields(ProcessFailure)][:4] == [
        "local_rank",
        "pid",
        "exitcode",
        "error_file",
    ]
    assert {"HEALTHY", "FAILED", "SUCCEEDED"} <= set(WorkerState.__members__)
    wanted = {"role", "local_world_size", "rdzv_handler", "entrypoint", "args", "max_restarts"}
    assert wanted | {"monitor_interval", "local_addr"} <= {f.name for f in fields(WorkerSpec)}
    assert {"backend", "endpoint", "run_id", "local_addr"} <= set(parameters(RendezvousParameters))


def test_the_agent_s_store_is_still_shared_unless_told_otherwise():
    """Ranks that start again hang on the addresses of dead ones (pytorch 135712, 167288)."""
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in inspect.getsource(dynamic_rendezvous)


def test_a_child_s_end_is_seen_and_left_to_be_reaped():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert _ended(child.pid) is None
    child.kill()
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _ended(child.pid) == -signal.SIGKILL
    assert child.wait() == -signal.SIGKILL
    assert _ended(child.pid) == 0
