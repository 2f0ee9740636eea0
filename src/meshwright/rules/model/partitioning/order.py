"""Structure partitioning (5.1): the order in which ranks are numbered over the axes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.finding import Severity
from meshwright.plan.job import expert_data_parallel
from meshwright.rules.rule import always, rule

if TYPE_CHECKING:
    from meshwright.plan.job import Job
    from meshwright.rules.rule import Mask

SECTION = "5.1"
STAGES_LAST = "tp-cp-ep-dp-pp"
_AXES = ("tp", "cp", "dp", "pp")


def axes_in_order(job: Job) -> tuple[str, ...]:
    """The axes as stated, fastest first; empty when the order is not stated."""
    stated = job.workload.runtime.rank_order
    return tuple(stated.split("-")) if stated else ()


@rule(
    "MOD145",
    "Dense and expert mesh put a rank on different stages",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/parallel_state.py initialize_model_parallel (0.19.2)",
    reads=("tp", "pp", "cp", "dp", "ep", "etp"),
    confidence="run",
)
def meshes_agree_on_stages(job: Job) -> Mask:
    """A rank's pipeline stage is the same for dense layers and for experts.

    Stages change every so many ranks as the axes before pp have: tp*cp on one mesh, ep*etp on the
    other unless dp comes before pp too. With pp last they always agree.

    Fails: plan(model="mixtral-8x7b", pp=2, ep=8, rank_order="tp-cp-ep-pp-dp")
    Passes: plan(model="mixtral-8x7b", pp=2, ep=8, rank_order="tp-cp-ep-dp-pp")
    Passes: plan(model="mixtral-8x7b", pp=2, tp=8, ep=8, rank_order="tp-cp-ep-pp-dp")
    """
    if not job.model.is_moe or "pp" not in axes_in_order(job):
        return False
    dense, expert = ranks_of_a_stage(job)
    return (job.plan.pp > 1) & (dense != expert)


def ranks_of_a_stage(job: Job) -> tuple[Any, Any]:
    """Consecutive ranks on one pipeline stage: on the dense mesh and on the expert mesh."""
    order, plan = axes_in_order(job), job.plan
    before = set(order[: order.index("pp")])
    if "ep" not in order and "cp" in before:  # experts fold over the ranks next to cp
        before.add("ep")
    dense = {"tp": plan.tp, "cp": plan.cp, "dp": plan.dp}
    expert = {"tp": plan.etp, "ep": plan.ep, "dp": expert_data_parallel(plan)}
    return _product(dense, before), _product(expert, before)


def _product(sizes: dict[str, Any], axes: set[str]) -> Any:
    """The product of the sizes of these axes."""
    return prod(np.asarray(size) for axis, size in sizes.items() if axis in axes)


@meshes_agree_on_stages.message
def _(job: Job) -> str:
    dense, expert = ranks_of_a_stage(job)
    order = job.workload.runtime.rank_order
    return f"rank_order = {order}: stages of {dense} ranks for dense layers, {expert} for experts"


meshes_agree_on_stages.fix(always(rank_order=(STAGES_LAST,)))


@rule(
    "MOD146",
    "Axis missing from the rank order",
    severity=Severity.ERROR,
    section=SECTION,
    source="Megatron-LM megatron/core/parallel_state.py RankGenerator (0.19.2)",
    reads=_AXES,
    confidence="run",
)
def order_names_every_axis(job: Job) -> Mask:
    """Ranks are numbered over every axis larger than one, so the order must name it.

    Fails: plan(pp=4, rank_order="tp-cp-dp")
    Passes: plan(pp=4, rank_order="tp-cp-dp-pp")
    """
    order = axes_in_order(job)
    fires: Mask = np.bool_(False)
    for axis in _AXES if order else ():
        fires = fires | ((getattr(job.plan, axis) > 1) & (axis not in order))
    return fires


@order_names_every_axis.message
def _(job: Job) -> str:
    order = axes_in_order(job)
    missing = [a for a in _AXES if getattr(job.plan, a) > 1 and a not in order]
    return f"{', '.join(missing)} larger than 1, rank_order = {'-'.join(order)}"


order_names_every_axis.fix(always(rank_order=(STAGES_LAST,)))
