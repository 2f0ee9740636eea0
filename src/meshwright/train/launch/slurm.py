"""A batch script for Slurm: `sbatch FILE`.

One task a node starts the supervisor there. Slurm sends SIGTERM to the tasks ahead of the time
limit; the ranks save and the tasks end with 75, upon which the job goes into the queue again and
later on from its checkpoint. A failed node requeues the job by Slurm's own `--requeue`.

Source: the manual pages of sbatch, srun and scontrol of Slurm 24.05.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from meshwright.train.launch.codes import PREEMPTED
from meshwright.train.launch.target import command, exports, named, summary

if TYPE_CHECKING:
    from meshwright.train.launch.target import Target

SUFFIX = "sbatch"
_EARLY_S = 60  # a signal may come that much late, says sbatch's manual


def job_file(target: Target) -> str:
    """The script; MeshwrightError where a name cannot stand in a directive."""
    lines = [
        "#!/bin/bash",
        *_directives(target),
        "",
        f"# {summary(target)}; submit it with sbatch, from the folder the paths are relative to",
        "set -euo pipefail",
        *exports(target.environment),
        *_meeting(target),
        f"mkdir -p -- {shlex.quote(target.out)}",
        "",
        "code=0",
        "# shellcheck disable=SC2016  # each task fills in its own number",
        f"{_srun(target)} || code=$?",
        f'if [ "$code" -eq {PREEMPTED} ]; then  # asked to stop, and saved: to be continued',
        '  scontrol requeue "$SLURM_JOB_ID"',
        "fi",
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def _directives(target: Target) -> list[str]:
    """What is asked of the scheduler."""
    asked = {
        "job-name": named("name", target.name),
        "partition": target.partition and named("partition", target.partition),
        "account": target.account and named("account", target.account),
        "time": target.time and named("time", target.time),
        "nodes": str(target.nodes),
        "ntasks-per-node": "1",
        "gpus-per-node": str(target.ranks_per_node) if target.on_gpus else "",
        "cpus-per-task": "" if target.whole_nodes else _cores(target),
        "signal": f"TERM@{target.grace_s + _EARLY_S}",
        "output": "%x-%j.out",
        "open-mode": "append",
    }
    given = [f"#SBATCH --{name}={value}" for name, value in asked.items() if value]
    return [*given, "#SBATCH --requeue", *(["#SBATCH --exclusive"] if target.whole_nodes else [])]


def _cores(target: Target) -> str:
    """Cores of the one task of a node, "" where the cluster does not say."""
    return str(target.cores_per_rank * target.ranks_per_node or "")


def _meeting(target: Target) -> list[str]:
    """Where the nodes meet: the first of them, at a port of this job's own."""
    if target.nodes == 1:
        return []
    return [
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        'export MESHWRIGHT_RDZV="$head:$((20000 + SLURM_JOB_ID % 20000))"',
    ]


def _srun(target: Target) -> str:
    """One task a node; those that still save are waited for when the first has ended."""
    one = command(target, node_rank='"$SLURM_PROCID"', rendezvous='"$MESHWRIGHT_RDZV"')
    options = f"--kill-on-bad-exit=0 --wait={target.grace_s} --cpu-bind=none"
    if target.image:
        options += f" --container-image={shlex.quote(target.image)}"
        options += ' --container-mounts="$PWD:$PWD" --container-workdir="$PWD"'
    return f"srun {options} bash -c {shlex.quote('exec ' + one)}"
