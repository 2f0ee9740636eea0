"""What a job file says, whichever scheduler it is for."""

from __future__ import annotations

import shlex
from dataclasses import field
from typing import TYPE_CHECKING

from meshwright.base.errors import MeshwrightError
from meshwright.base.noun import dataclass
from meshwright.base.pattern import pattern
from meshwright.base.words import plural, shown
from meshwright.plan.job import world_size
from meshwright.rules.communication.resources import LARGE_FABRIC_NODES, SAFE_IB_TIMEOUT
from meshwright.rules.environment import network_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.plan.job import Job

PORT = 29500
_NAME = pattern(r"[A-Za-z0-9._+=:,/@%-]+\Z")
_VARIABLE = pattern(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VERBS = ("infiniband", "roce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A run on a cluster.

    `plan` and `out` are paths as the nodes see them, `options` what is passed on to `meshwright
    train` unread. `time` is the scheduler's own notation. `grace_s` is how long the ranks have to
    save when the job is asked to stop.
    """

    plan: str
    out: str
    nodes: int
    ranks_per_node: int
    gpu: str = ""  # empty: the ranks run on CPUs
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = "meshwright"
    image: str = ""
    partition: str = ""
    account: str = ""
    time: str = ""
    namespace: str = ""
    volume: str = ""
    infra: str = ""
    max_restarts: int = 10
    grace_s: int = 120
    cores_per_rank: int = 0
    memory_bytes: float = 0.0
    whole_nodes: bool = True

    @property
    def on_gpus(self) -> bool:
        """Whether the ranks run on GPUs."""
        return bool(self.gpu)


def environment_of(job: Job) -> dict[str, str]:
    """Variables that the plan states, and those that the rules ask of its cluster.

    A very large InfiniBand fabric needs patience (COM312), a rank its share of the host's cores.
    """
    runtime, cluster = job.workload.runtime, job.cluster
    found: dict[str, str] = {}
    if cluster.host.cores:
        found["OMP_NUM_THREADS"] = str(cores_per_rank(job))
    if cluster.num_nodes >= LARGE_FABRIC_NODES and network_kind(cluster) in _VERBS:
        found["NCCL_IB_TIMEOUT"] = str(SAFE_IB_TIMEOUT)
    stated = {
        "CUDA_DEVICE_MAX_CONNECTIONS": runtime.cuda_device_max_connections,
        "NCCL_ALGO": runtime.nccl_algo,
        "NCCL_PROTO": runtime.nccl_proto,
    }
    found |= {name: str(value) for name, value in stated.items() if value is not None}
    return found | dict(runtime.environment)


def cores_per_rank(job: Job) -> int:
    """A GPU's share of its host's cores, at least 1; 0 where the cluster does not say."""
    cores = job.cluster.host.cores
    return max(1, cores // job.cluster.gpus_per_node) if cores else 0


def nodes_of(job: Job) -> tuple[int, int]:
    """Nodes that the plan occupies and ranks on each, which are the same on every node."""
    ranks = int(world_size(job.plan))
    nodes = -(-ranks // job.cluster.gpus_per_node)
    while ranks % nodes:
        nodes += 1
    return nodes, ranks // nodes


def arguments(target: Target) -> list[str]:
    """The command that trains, for a single node.

    A run that was begun goes on: `--resume` starts anew only where there is no checkpoint.
    """
    argv = ["meshwright", "train", target.plan, "--out", target.out, "--resume"]
    argv += ["--max-restarts", str(target.max_restarts), "--grace", str(target.grace_s)]
    return argv + list(target.options)


def command(target: Target, *, node_rank: str, rendezvous: str) -> str:
    """The same as a line of shell, for one node of several.

    `node_rank` and `rendezvous` ("host:port") are shell text, variables that the scheduler sets.
    """
    argv = arguments(target)
    words = [shlex.join(argv[:3])]
    if target.nodes > 1:
        words += [f"--nnodes {target.nodes} --node-rank {node_rank} --rdzv {rendezvous}"]
    return " ".join([*words, shlex.join(argv[3:])])


def named(what: str, value: str) -> str:
    """A name as schedulers take it on a line of its own; MeshwrightError for any other."""
    if _NAME.match(value):
        return value
    raise MeshwrightError(
        f"{what} {shown(value)} is no name that a scheduler takes",
        hint="use letters, digits and . _ - + = : , / @ %",
    )


def summary(target: Target) -> str:
    """What the file runs, on one line whatever the GPU is called."""
    unit = f"{target.ranks_per_node} " + (f"x {target.gpu}" if target.gpu else "ranks")
    text = f"{plural(target.nodes, 'node')} of {unit}"
    return "".join(c if c.isprintable() else " " for c in text)


def exports(variables: Mapping[str, str]) -> list[str]:
    """Shell lines that set variables, whatever their values hold."""
    return [f"export {name}={shlex.quote(value)}" for name, value in checked(variables).items()]


def checked(variables: Mapping[str, str]) -> Mapping[str, str]:
    """The same; MeshwrightError for a name that no shell takes, or a value with a null byte."""
    for name, value in variables.items():
        if not _VARIABLE.match(name):
            raise MeshwrightError(
                f"{shown(name)} is no name of an environment variable",
                hint="use letters, digits and _, as --env NCCL_DEBUG=INFO",
            )
        if "\0" in value:
            raise MeshwrightError(f"{name} holds a null byte", hint="leave it out")
    return variables
