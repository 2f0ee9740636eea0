"""torchrun's elastic agent with an ear for what happens to its ranks.

`LocalElasticAgent` restarts ranks by itself, but is slow and silent: after a failure it waits up to
30 s for each of the others to obey SIGTERM, and tells nobody which rank it was. Overridden are
`_start_workers` and `_monitor_workers`, the hooks that its base class documents, and `_rendezvous`
(torch 2.13, distributed/elastic/agent/server/{api,local_elastic_agent}.py). The order of calls is
that of `launch_agent` in distributed/launcher/api.py, which leaves no room for a subclass.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import msgspec
import torch.distributed.elastic.rendezvous.registry as registry
from torch.distributed import PrefixStore
from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from meshwright.base.errors import MeshwrightError
from meshwright.train.launch import event
from meshwright.train.launch.codes import DONE, FAILED, PREEMPTED, REFUSED
from meshwright.train.launch.event import Event
from meshwright.train.launch.rank import run
from meshwright.train.launch.settings import FORK, AgentSettings, RankSettings

_LAST_WORDS_S = 1.0  # for the other ranks to write why they fail too
_KILLED_S = 30.0  # a process in the kernel, waiting for a GPU or disk, may not go at all
_POLL_S = 0.02
_MONITOR_S = 0.05


class Agent(LocalElasticAgent):
    """The agent of one node; tells the supervisor of ranks that start and fail."""

    def __init__(self, spec: WorkerSpec, settings: AgentSettings) -> None:
        super().__init__(spec, DefaultLogsSpecs(), start_method="fork")
        self._settings = settings
        self.preempted = False
        self.attempt = settings.attempt - 1  # rises with every start, also for a node that joins

    def _rendezvous(self, worker_group: Any) -> None:
        """Meets the other nodes; ranks lie as the nodes are numbered, not as they are called."""
        super()._rendezvous(worker_group)
        place, ranks = self._settings.node_rank, self._settings.ranks
        if self._settings.nodes == 1:
            return
        store = PrefixStore("places", worker_group.store)
        if store.add(str(place), 1) > 1:
            raise MeshwrightError(
                f"two nodes call themselves node {place}", hint="give each its own --node-rank"
            )
        first = RendezvousStoreInfo.build(place, store, None)
        worker_group.group_rank = place
        worker_group.master_addr, worker_group.master_port = first.master_addr, first.master_port
        for worker in worker_group.workers:
            worker.global_rank = worker.role_rank = place * ranks + worker.local_rank

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        """Starts the ranks and tells their processes."""
        self.attempt += 1
        spec = worker_group.spec
        spec.entrypoint, spec.args = _entry(self._settings, self.attempt)
        pids: dict[int, Any] = super()._start_workers(worker_group)
        by_rank = {w.global_rank: int(pids[w.local_rank]) for w in worker_group.workers}
        left: int = self._remaining_restarts
        self._tell(Event(kind=event.RANKS, attempt=self.attempt, pids=by_rank, left=left))
        return pids

    def _monitor_workers(self, worker_group: Any) -> Any:
        """The state of the ranks; when one has failed the others are ended, and quickly.

        The overridden method is not called: after a failure it logs, for which torch imports its
        compiler (4 s), and waits for each of the other ranks to obey SIGTERM (30 s).
        """
        local = self._pcontext.pids()
        codes = {self._ended(pid) for pid in local.values()}
        if codes - {None, DONE, PREEMPTED}:
            return RunResult(state=WorkerState.FAILED, failures=self._end(worker_group, local))
        self.preempted = PREEMPTED in codes
        if None in codes:
            return RunResult(state=WorkerState.HEALTHY)
        nothing = {worker.global_rank: None for worker in worker_group.workers}
        return RunResult(state=WorkerState.SUCCEEDED, return_values=nothing)

    def _end(self, worker_group: Any, local: dict[int, int]) -> dict[int, ProcessFailure]:
        """Kills whoever does not end soon; failures by rank, told in the order of their ends."""
        ended = self._ends(local, within_s=_LAST_WORDS_S)
        for place in local.keys() - ended.keys():
            os.kill(local[place], signal.SIGKILL)  # not reaped yet: the number is still its own
        killed = self._ends({p: local[p] for p in local.keys() - ended.keys()}, within_s=_KILLED_S)
        if REFUSED in ended.values():
            self._remaining_restarts = 0
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        failed = {p: code for p, code in ended.items() if code not in (DONE, PREEMPTED)}
        for place, code in failed.items():
            self._tell(Event(kind=event.FAILED, attempt=self.attempt, rank=ranks[place], code=code))
        return {
            ranks[place]: ProcessFailure(place, local[place], code, "")
            for place, code in (failed | killed).items()
        }

    def _ends(self, local: dict[int, int], *, within_s: float) -> dict[int, int]:
        """How children (by place) ended within a time, in the order of their ends."""
        ends: dict[int, int] = {}
        end_s = time.monotonic() + within_s
        while len(ends) < len(local) and time.monotonic() < end_s:
            for place in local.keys() - ends.keys():
                code = self._ended(local[place])
                if code is not None:
                    ends[place] = code
            time.sleep(_POLL_S)
        return ends

    def _ended(self, pid: int) -> int | None:
        """How a child ended, negative for a signal; None while it runs."""
        if hasattr(os, "waitid"):
            return _ended(pid)
        handlers = self._pcontext.subprocess_handlers.values()  # macOS, where nothing is forked
        code: int | None = next(h.proc.poll() for h in handlers if h.proc.pid == pid)
        return code

    def _tell(self, told: Event) -> None:
        event.write(self._settings.events, told)


def run_agent(settings: AgentSettings) -> int:
    """Runs the ranks of this node to their end; an exit code of `launch.codes`."""
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"
    rendezvous = registry.get_rendezvous_handler(_rendezvous(settings))
    entrypoint, arguments = _entry(settings, settings.attempt)
    spec = WorkerSpec(
        role="ranks",
        local_world_size=settings.ranks,
        entrypoint=entrypoint,
        args=arguments,
        rdzv_handler=rendezvous,
        max_restarts=settings.restarts,
        monitor_interval=_MONITOR_S,
        local_addr="127.0.0.1" if settings.nodes == 1 else None,
    )
    agent = Agent(spec, settings)
    try:
        result = agent.run()
    except RendezvousClosedError:  # another node has given up
        return _ended_with(FAILED, settings, agent)
    except MeshwrightError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        rendezvous.shutdown()
        return _ended_with(REFUSED, settings, agent)
    rendezvous.shutdown()
    code = PREEMPTED if agent.preempted else DONE
    if result is not None and result.is_failed():
        codes = [failure.exitcode for failure in result.failures.values()]
        code = REFUSED if REFUSED in codes else FAILED
    return _ended_with(code, settings, agent)


def _ended_with(code: int, settings: AgentSettings, agent: Agent) -> int:
    """Tells the supervisor that this is how it was meant to end."""
    event.write(settings.events, Event(kind=event.ENDED, attempt=agent.attempt, code=code))
    return code


def _rendezvous(settings: AgentSettings) -> RendezvousParameters:
    """How the agents of all nodes find each other: a store at the endpoint, or here."""
    here = settings.nodes == 1
    return RendezvousParameters(
        backend="c10d",
        endpoint="127.0.0.1:0" if here else settings.endpoint,
        run_id=settings.run,
        min_nodes=settings.nodes,
        max_nodes=settings.nodes,
        local_addr="127.0.0.1" if here else None,
        timeout=int(settings.rendezvous_s),
        **({} if here else {"is_host": str(settings.node_rank == 0)}),
    )


def _entry(settings: AgentSettings, attempt: int) -> tuple[Any, tuple[Any, ...]]:
    """What torch starts as a rank: a function in a fork, or a command."""
    rank = RankSettings(
        worker=settings.worker,
        attempt=attempt,
        log_folder=settings.log_folder,
        parent=os.getpid(),
    )
    if settings.start == FORK:
        return run, (rank,)
    text = msgspec.json.encode(rank).decode().replace("$", "$$")  # torch fills in $local_rank
    return sys.executable, ("-P", "-m", "meshwright.train.launch.rank", text)


def _ended(pid: int) -> int | None:
    """How a child ended, negative for a signal; None while it runs. It is left to be reaped."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return DONE  # reaped by torch, which looked at its code
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
