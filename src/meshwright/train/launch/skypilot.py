"""A task for SkyPilot; `sky jobs launch FILE` recovers it from lost machines.

--out must be storage that outlives the machines: mount a bucket or a volume there under
`file_mounts`, or the run starts anew.

Source: SkyPilot 0.10, "SkyPilot YAML", "Distributed multi-node jobs", "Managed jobs".
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.train.launch.codes import PREEMPTED
from meshwright.train.launch.documents import to_yaml
from meshwright.train.launch.target import PORT, checked, command, summary

if TYPE_CHECKING:
    from meshwright.train.launch.target import Target

_MEMORY = pattern(r"^(A100)-80G\b.*")
_VARIANT = pattern(r"^(RTX)-(\d+).*|^([A-Z]+\d+[A-Z]*).*")
_SETUP = 'pip install "meshwright[train]"'


def job_file(target: Target) -> str:
    """The task; with an image nothing is installed at its start."""
    resources: dict[str, Any] = {}
    if target.on_gpus:
        resources["accelerators"] = f"{accelerator(target.gpu)}:{target.ranks_per_node}"
    if target.infra:
        resources["infra"] = target.infra
    if target.image:
        resources["image_id"] = f"docker:{target.image}"
    resources["job_recovery"] = {
        "max_restarts_on_errors": target.max_restarts,
        "recover_on_exit_codes": [PREEMPTED],
    }
    task = {
        "name": target.name,
        "num_nodes": target.nodes,
        "resources": resources,
        "workdir": ".",
        "envs": dict(checked(target.environment)),
        **({} if target.image else {"setup": f"{_SETUP}\n"}),
        "run": _run(target),
    }
    return to_yaml(task, comment=f"{summary(target)}; sky jobs launch FILE")


def accelerator(gpu: str) -> str:
    """A GPU as SkyPilot calls it: without memory and form, but for the larger A100."""
    if _MEMORY.match(gpu):
        return "A100-80GB"
    match = _VARIANT.match(gpu)
    if match is None:
        return gpu
    return "".join(part for part in match.groups() if part)


def _run(target: Target) -> str:
    """The script that every node runs."""
    rendezvous = f'"$head:{PORT}"'
    lines = [f"mkdir -p -- {shlex.quote(target.out)}"]
    if target.nodes > 1:
        lines.append('head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)')
    lines.append(command(target, node_rank='"$SKYPILOT_NODE_RANK"', rendezvous=rendezvous))
    return "\n".join(lines) + "\n"
