"""Losses that measured runs of a software stack show beyond the arithmetic of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.job import num_microbatches
from meshwright.rules.rule import rule

if TYPE_CHECKING:
    from typing import Any

    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

WORTH_SAYING_S = 0.05  # a micro-batch, well above what the model's other terms are off by


@rule(
    "COM290",
    "Hand-overs that stall on this software stack",
    severity=Severity.WARNING,
    section="7.2",
    source="769 published nanotron runs with a pipeline over 4 to 64 nodes; docs/accuracy.md",
    reads=("pp", "dp", "zero_stage"),
    confidence="heuristic",
)
def hand_overs_stall(job: Job) -> Mask:
    """Some stacks lose half a second or more a micro-batch where hand-overs share the network.

    Seen on very many nodes, and from four nodes on where gradients of replicas are reduced at every
    micro-batch because nothing is sharded. Shard the optimizer (zero_stage = 1), keep the pipeline
    inside fewer nodes, or measure one step with and without the pipeline before the long run.

    Fails: plan(stack="nanotron", pp=4, tp=2, zero_stage=0)
    Passes: plan(stack="nanotron", pp=4, tp=2, zero_stage=1)
    """
    return _lost_s(job) > WORTH_SAYING_S


def _lost_s(job: Job) -> Any:
    """Seconds a micro-batch loses, near-full memory left out."""
    if np.all(job.plan.pp <= 1):
        return 0.0 * job.plan.pp  # nobody to hand over to
    from meshwright.cost.calibration import default_calibration
    from meshwright.cost.step import stall_s

    return stall_s(job, default_calibration().stack(job.stack), 0.0)


@hand_overs_stall.message
def _(job: Job) -> str:
    lost_s = float(_lost_s(job))
    count = int(num_microbatches(job))
    return (
        f"stack {job.stack!r}, pp {job.plan.pp} on {job.cluster.num_nodes} nodes, zero_stage "
        f"{job.plan.zero_stage}: about {lost_s:.1f} s a micro-batch, {lost_s * count:.0f} s a step"
    )
