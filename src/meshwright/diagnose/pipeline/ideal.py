"""What a pipeline's idle time would be with even stages and free transfers, and the rest of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORWARD = 1 / 3  # of a microbatch's time, where only the sum of both passes is known


def ideal_bubble(p: int, m: int, v: int = 1) -> float:
    """Share of the step, 0 to 1, in which a stage of 1F1B waits: (p - 1) / (v m + p - 1).

    `p` stages, `m` microbatches, `v` chunks of the model on each stage (interleaved schedule,
    which fills and drains in chunks). Source: arXiv 2104.04473, section 2.2, as a share of the
    whole step rather than of the ideal one.
    """
    if p < 1 or m < 1 or v < 1:
        return 0.0
    return (p - 1) / (v * m + p - 1)


def bubble_parts_us(
    step_us: float, replicas_us: Sequence[Sequence[float]], *, m: int, v: int = 1
) -> Mapping[str, float]:
    """A step of 1F1B (interleaved where `v` > 1) in four parts that sum to it, microseconds.

    `replicas_us` has, for every data-parallel replica, what each stage computes in the step. Parts:
    "compute", its mean; "ideal_bubble", what even stages would idle; "imbalance", what the slowest
    replica takes beyond that since its stages are not even (`cost.schedules.closed_form`); "waits",
    the rest: transfers, collectives, the optimizer, launches.
    """
    rows = [[max(us, 0.0) for us in row] for row in replicas_us if row]
    p = max(map(len, rows), default=0)
    if not p or m < 1 or v < 1 or step_us <= 0:
        return {}
    compute = min(sum(map(sum, rows)) / sum(map(len, rows)), step_us)
    even = compute / (1 - ideal_bubble(p, m, v))
    uneven = max(max(_pipeline_us(row, m=m, v=v) for row in rows), even)
    ideal = min(even, step_us)
    bound = min(uneven, step_us)
    return {
        "compute": compute,
        "ideal_bubble": ideal - compute,
        "imbalance": bound - ideal,
        "waits": step_us - bound,
    }


def _pipeline_us(stages_us: Sequence[float], *, m: int, v: int) -> float:
    """From the first forward to the last backward of stages that compute this much in a step."""
    from meshwright.cost.schedules.closed_form import pipeline_s
    from meshwright.plan.plan import Schedule

    slowest, total = max(stages_us) / m, sum(stages_us) / m
    return float(
        pipeline_s(
            Schedule.ONE_F_ONE_B,
            pp=len(stages_us),
            vpp=v,
            num_microbatches=m,
            forward_s=FORWARD * slowest,
            backward_s=(1 - FORWARD) * slowest,
            weight_s=0.0,
            total_forward_s=FORWARD * total,
            total_backward_s=(1 - FORWARD) * total,
            total_weight_s=0.0,
            ranks_after=len(stages_us) - 1 - list(stages_us).index(max(stages_us)),
        )
    )
