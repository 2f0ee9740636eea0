"""Ranks of this node under supervision, until they are done, told to stop, or fail too often.

Three kinds of processes: this one imports no torch and decides; its child is torchrun's agent
(`agent`), which starts the ranks and, when one fails, starts all of them again together with the
agents of other nodes; the ranks train. A rank dies with the agent and the agent with this process,
so nothing is left behind however one of them ends. When the agent itself ends or shows no life, it
is started again here.

The agent and not the supervisor restarts ranks, because only agents know of other nodes, and
because one that has imported torch forks ranks in a tenth of a second.
"""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.train.launch.asked import Asked
from meshwright.train.launch.environment import rank_environment
from meshwright.train.launch.lock import held
from meshwright.train.launch.processes import adopting
from meshwright.train.launch.settings import EXECUTE, FORK, AgentSettings
from meshwright.train.launch.supervisor import Supervisor
from meshwright.train.watch.lag import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.train.launch.event import Event


def supervise(
    worker: Sequence[str],
    *,
    ranks_per_node: int,
    nodes: int = 1,
    node_rank: int = 0,
    endpoint: str = "",
    run: str = "",
    max_restarts: int = 3,
    grace_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
    log_folder: str | Path,
    start: str = FORK,
    limits: Limits | None = None,
    before: Callable[[], object] | None = None,
    on_event: Callable[[Event], object] | None = None,
) -> int:
    """Runs `worker` (a module and its arguments) on every rank; an exit code of `codes`.

    The module has `main(arguments) -> int | None`; it finds RANK, WORLD_SIZE, LOCAL_RANK and the
    rest of torchrun's variables, and MESHWRIGHT_ATTEMPT, above 0 when it is to go on from its last
    checkpoint. SIGINT and SIGTERM are passed on as a request to save and exit within `grace_s`; a
    second one ends everything at once. All nodes call this with the same `run` and `endpoint`
    ("host:port" of node 0). Ranks that stand still for longer than `limits` are ended and started
    again, as those that fail, `max_restarts` times together. `start` is "fork" for ranks on CPUs,
    "execute" for GPUs. `before` is called once the folder is this run's alone: what it writes is
    read by no other run.
    """
    if nodes > 1 and not (endpoint and run):
        raise _lonely(nodes)
    logs = Path(log_folder).absolute()
    settings = AgentSettings(
        worker=tuple(worker),
        ranks=ranks_per_node,
        nodes=nodes,
        node_rank=node_rank,
        endpoint=endpoint,
        run=run or uuid.uuid4().hex,
        start=_startable(start),
        attempt=0,
        restarts=max_restarts,
        log_folder=str(logs),
        supervisor=os.getpid(),
        events=-1,
        lifeline=-1,
    )
    variables = rank_environment(
        os.environ, environment or {}, ranks=ranks_per_node, nodes=nodes, log_folder=logs
    )
    with held(logs / f"lock-{node_rank}") as lock:
        if before is not None:
            before()
        watch = (grace_s, limits or Limits(), on_event or _silent)
        return _supervised(settings, lock, variables, watch=watch)


def _supervised(
    settings: AgentSettings,
    lock: int,
    variables: dict[str, str],
    *,
    watch: tuple[float, Limits, Callable[[Event], object]],
) -> int:
    """The agent and its ranks to their end, what they leave behind included."""
    grace_s, limits, tell = watch
    with Asked() as asked, adopting():
        supervisor = Supervisor(
            settings,
            lock=lock,
            environment=variables,
            grace_s=grace_s,
            limits=limits,
            asked=asked,
            tell=tell,
        )
        return supervisor.run()


def _lonely(nodes: int) -> MeshwrightError:
    return MeshwrightError(
        f"{nodes} nodes cannot find each other without an endpoint and the name of the run",
        hint="give every node the same --rdzv HOST:PORT",
    )


def _startable(start: str) -> str:
    """Forking is for Linux: on macOS a forked process may not touch the system's libraries."""
    if start not in (FORK, EXECUTE):
        raise MeshwrightError(f"ranks cannot be started by {start!r}", hint="fork or execute")
    return start if sys.platform.startswith("linux") else EXECUTE


def _silent(_event: Event) -> None:
    """Tells nobody."""
