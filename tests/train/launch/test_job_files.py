"""Files for schedulers: what they ask for, and that no name escapes from its place."""

from __future__ import annotations

import subprocess

import pytest

from meshwright.base.errors import UnknownName
from meshwright.train.launch.schedulers import job_file
from meshwright.train.launch.target import Target

HOSTILE = "$(touch owned) `touch owned` '; touch owned; \" \\ \n#SBATCH --wrap=x\n- touch owned"


def target(**changes):
    values = {
        "plan": "plan.toml",
        "out": "runs/a",
        "nodes": 2,
        "ranks_per_node": 8,
        "gpu": "H100-80G-SXM",
        "options": ("--data", "shards/", "--steps", "1000"),
        "environment": {"NCCL_ALGO": "Ring"},
    }
    return Target(**(values | changes))


def bash_accepts(text):
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    return done.returncode == 0 and not done.stderr


@pytest.mark.parametrize("scheduler", ["slurm", "torchrun"])
@pytest.mark.parametrize("nodes", [1, 2])
def test_scripts_are_bash(scheduler, nodes):
    assert bash_accepts(job_file(scheduler, target(nodes=nodes)))
    assert bash_accepts(job_file(scheduler, target(nodes=nodes, out=HOSTILE, options=(HOSTILE,))))


def test_an_unknown_scheduler_is_refused():
    with pytest.raises(UnknownName, match="slrum"):
        job_file("slrum", target())
