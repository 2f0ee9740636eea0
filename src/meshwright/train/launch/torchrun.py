"""A shell script to run on every node by hand, or by whatever starts commands there."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from meshwright.train.launch.target import PORT, command, exports, summary

if TYPE_CHECKING:
    from meshwright.train.launch.target import Target

SUFFIX = "sh"


def job_file(target: Target) -> str:
    """The script; with several nodes it takes the number of the node it runs on."""
    lines = ["#!/bin/bash", f"# {summary(target)}", *_usage(target), "set -euo pipefail"]
    lines += exports(target.environment)
    lines += [f"mkdir -p -- {shlex.quote(target.out)}"]
    one = command(target, node_rank='"$node"', rendezvous=f'"$HEAD:${{PORT:-{PORT}}}"')
    return "\n".join([*lines, f"exec {one}"]) + "\n"


def _usage(target: Target) -> list[str]:
    """How the script is called, one line a node."""
    if target.nodes == 1:
        return ["# bash FILE"]
    return [
        "# on node 0:  HEAD=address-of-node-0 bash FILE 0",
        f"# on node {target.nodes - 1}:  HEAD=address-of-node-0 bash FILE {target.nodes - 1}",
        "node=${1:?which node is this, from 0?}",
        ': "${HEAD:?the address of node 0}"',
    ]
