"""A driver for Ray: `ray job submit --working-dir . -- python FILE`.

It takes one bundle a node, all at once, and runs the supervisor in each. A lost node ends the
others' ranks; the driver then takes bundles anew and goes on from the last checkpoint.

Source: Ray 2.50, "Placement groups" and "Ray Jobs".
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from meshwright.train.launch.codes import DONE, PREEMPTED, REFUSED
from meshwright.train.launch.target import PORT, arguments, checked, summary

if TYPE_CHECKING:
    from meshwright.train.launch.target import Target

_DRIVER = """\
# {summary}; ray job submit --working-dir . -- python FILE
import ctypes
import json
import os
import signal
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

JOB = json.loads({settings})


@ray.remote(max_retries=0)
def address():
    return ray.util.get_node_ip_address()


@ray.remote(max_retries=0)
def train(node, head):
    command = JOB["command"]
    if JOB["nodes"] > 1:
        place = ["--nnodes", str(JOB["nodes"]), "--node-rank", str(node)]
        command = command[:3] + place + ["--rdzv", f"{{head}}:{{JOB['port']}}"] + command[3:]
    return subprocess.call(
        command, env={{**os.environ, **JOB["environment"]}}, preexec_fn=stop_with_parent
    )


def stop_with_parent():  # when Ray ends this worker, the run saves and stops
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def attempt():
    group = placement_group([JOB["bundle"]] * JOB["nodes"], strategy="STRICT_SPREAD")
    ray.get(group.ready())
    try:
        head = ray.get(address.options(num_cpus=0, **inside(group, 0)).remote())
        whole = {{"num_cpus": JOB["bundle"]["CPU"], "num_gpus": JOB["bundle"].get("GPU", 0)}}
        nodes = [
            train.options(**whole, **inside(group, node)).remote(node, head)
            for node in range(JOB["nodes"])
        ]
        return worst(ray.get(nodes))
    except ray.exceptions.RayError as error:  # a node is lost
        print(error, file=sys.stderr)
        return 1
    finally:
        remove_placement_group(group)


def worst(codes):
    failed = [code for code in codes if code not in (0, {preempted})]
    return {refused} if {refused} in failed else 1 if failed else max(codes)


def inside(group, bundle):
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
    return {{"scheduling_strategy": strategy}}


ray.init()
for _ in range(JOB["attempts"]):
    code = attempt()
    if code in JOB["final"]:
        break
sys.exit(code)
"""


def job_file(target: Target) -> str:
    """The driver, a Python program; what it is told stands in one string of JSON."""
    cores = max(target.cores_per_rank, 1) * target.ranks_per_node
    gpus = {"GPU": target.ranks_per_node} if target.on_gpus else {}
    settings = {
        "command": arguments(target),
        "environment": dict(checked(target.environment)),
        "nodes": target.nodes,
        "bundle": {"CPU": 1 if target.on_gpus else cores, **gpus},
        "port": PORT,
        "attempts": target.max_restarts + 1,
        "final": [DONE, REFUSED, PREEMPTED],
    }
    return _DRIVER.format(
        summary=summary(target),
        settings=repr(json.dumps(settings)),
        preempted=PREEMPTED,
        refused=REFUSED,
    )
