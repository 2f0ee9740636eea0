"""Causes in communication: what of it stands exposed, and why."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.causes.case import axis_of, steps_of
from meshwright.diagnose.causes.exposed import (
    DATA_PARALLEL,
    EXPOSED,
    exposed_us,
    overlapped_share,
    part_of,
)
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.proofs import of_collectives, of_parts, of_ranks, some, time
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.causes.stragglers import wait_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Collective

COMMUNICATION = "communication"
AXIS_SHARE = 0.05  # of the step: what a plan hides leaves less
UNKNOWN_SHARE = 0.1  # of the step, where not even the axis is known
MANY_CALLS = 100  # a step: buckets of 25 MB and more make some dozens at most
BUCKET_BYTES = 25e6  # DDP's default
SOME_CALLS, TOO_MANY = 20, 10.0  # where sizes are told: a step, and times what buckets would be
SMALL_BYTES = 1e6  # below it a collective is latency on every link of today
SMALL_US = 250.0  # the same where sizes are not told: launch, latency and some waiting
NO_OVERLAP = 0.2  # of the time of small collectives beside compute


def _axis(case: Case, axes: tuple[str, ...], name: str, made: Any) -> Found | None:
    """Exposed communication of axes as a finding."""
    us = exposed_us(case, *axes)
    if case.of_step(us) < AXIS_SHARE:
        return None
    alone = case.across is None and (case.ranks[0].world_size or 1) > 1
    guards = ("from one rank, waiting cannot be told from transfer",) if alone else ()
    hidden = overlapped_share(case, *axes)
    beside = f"; {hidden:.0%} of it runs beside compute" if hidden is not None else ""
    return Found(
        message=f"{name} stands exposed for {time(us)} of each step{beside}.",
        proofs=some(
            of_parts(case, EXPOSED, what="all exposed communication"),
            *(of_collectives(case, axis=axis) for axis in axes),
        ),
        lever=made,
        takes_us={part_of(axes[0]): us},
        guards=guards,
    )


@cause(
    "COM901",
    "Tensor-parallel communication stands exposed",
    kind=COMMUNICATION,
    source="Megatron-LM (arXiv 1909.08053), section 3; sequence parallelism (arXiv 2205.05198)",
    said_by=("COM911",),
)
def exposed_tp(case: Case) -> Found | None:
    """Every layer waits for its all-reduce (or gather and scatter) between the ranks of tp.

    Shown by: collectives of the tp groups with no compute beside them. Costs: that time, less
    waiting for late ranks. Do: keep tp inside a node, sequence parallelism, overlap_tp, smaller tp.
    """
    return _axis(case, ("tp",), "Tensor-parallel communication", _tp_lever(case))


def _tp_lever(case: Case) -> Any:
    changes: dict[str, Any] = {"overlap_tp": True}
    if case.job is not None and case.job.plan.overlap_tp and int(case.job.plan.tp) > 1:
        plan = case.job.plan
        changes = {"tp": int(plan.tp) // 2, "dp": 2 * int(plan.dp)}
    return lever(
        case,
        "overlap tp's collectives with their products, or a smaller tp",
        changes=changes,
        free="tp",
    )


@cause(
    "COM902",
    "Data-parallel communication stands exposed",
    kind=COMMUNICATION,
    source="PyTorch DDP (arXiv 2006.15704), section 3.2; ZeRO (arXiv 1910.02054), section 7",
    said_by=("COM907", "COM908", "COM909", "COM910", "COM911", "COM917", "COM920"),
)
def exposed_dp(case: Case) -> Found | None:
    """Gradients are reduced, or parameters gathered, while nothing computes.

    Shown by: collectives of the data-parallel groups with no compute beside them.
    Costs: that time, less waiting for late ranks. Do: overlap_grad_reduce, overlap_param_gather,
    more micro-batches a step, gradients in 16 bits (reduce_bytes), HSDP (dp_replicate).
    """
    return _axis(case, DATA_PARALLEL, "Data-parallel communication", _dp_lever(case))


def _dp_lever(case: Case) -> Any:
    plan = case.job.plan if case.job else None
    changes: dict[str, Any] = {"overlap_grad_reduce": True}
    if plan is not None and plan.overlap_grad_reduce:
        changes = (
            {"overlap_param_gather": True} if not plan.overlap_param_gather else {"reduce_bytes": 2}
        )
    return lever(
        case,
        "reduce gradients beside backward, gather parameters beside forward, in fewer bytes",
        changes=changes,
        free="dp",
    )


@cause(
    "COM903",
    "Context-parallel communication stands exposed",
    kind=COMMUNICATION,
    source="Ring attention (arXiv 2310.01889), section 3; DeepSpeed Ulysses (arXiv 2309.14509)",
    said_by=("COM911",),
)
def exposed_cp(case: Case) -> Found | None:
    """Keys and values of other ranks arrive later than the attention that hides them ends.

    Shown by: collectives or sends of the cp groups with no compute beside them. Costs: that time.
    Do: smaller cp, all-to-all inside the node (context_parallel, cp_inner),
    longer sequences a rank.
    """
    made = lever(
        case,
        "a smaller cp, or all-to-all over heads inside the node",
        changes={"context_parallel": "ulysses"},
        free="cp",
    )
    return _axis(case, ("cp",), "Context-parallel communication", made)


@cause(
    "COM904",
    "Expert-parallel all-to-all stands exposed",
    kind=COMMUNICATION,
    source="GShard (arXiv 2006.16668), section 3; DeepSeek-V3 (arXiv 2412.19437), section 3.2",
    said_by=("COM911", "COM912", "COM916"),
)
def exposed_ep(case: Case) -> Found | None:
    """Tokens travel to their experts and back while nothing computes.

    Shown by: all-to-alls (NCCL, DeepEP, NVSHMEM) of the ep groups with no compute beside them.
    Costs: that time. Do: ep inside a node, overlap with shared experts or another micro-batch
    (overlap_ep), DeepEP, a smaller ep.
    """
    made = lever(
        case,
        "overlap the exchange with other work (overlap_ep), or a smaller ep",
        changes={"overlap_ep": True},
        free="ep",
    )
    return _axis(case, ("ep",), "Expert-parallel communication", made)


@cause(
    "COM905",
    "Hand-overs between pipeline stages stand exposed",
    kind=COMMUNICATION,
    source="Megatron-LM (arXiv 2104.04473), section 2.2",
    said_by=("COM911", "MOD904", "MOD905", "MOD906"),
)
def exposed_pp(case: Case) -> Found | None:
    """Stages wait for activations or gradients of their neighbours beyond the bubble.

    Shown by: sends and receives of the pp groups with no compute beside them. Costs: that time.
    Do: overlap_pp, stages on neighbouring nodes, fewer chunks a stage (vpp).
    """
    made = lever(
        case,
        "overlap hand-overs with compute, fewer chunks",
        changes={"overlap_pp": True},
        free="pp",
    )
    return _axis(case, ("pp",), "Pipeline hand-overs", made)


def _reduces_most(case: Case) -> bool:
    """Whether most of what stands exposed are reductions, as gradients need."""
    found = [
        (c, _REDUCES.search(f"{c.collective} {c.kernel}"))
        for r in case.ranks
        for c in r.collectives
    ]
    reduced = sum(c.exposed_us for c, is_one in found if is_one)
    return 2 * reduced > sum(c.exposed_us for c, _ in found)


_REDUCES = re.compile(r"all_?reduce|reduce_?scatter", re.IGNORECASE)


@cause(
    "COM906",
    "Communication stands exposed",
    kind=COMMUNICATION,
    source="PyTorch DDP (arXiv 2006.15704), section 3.2",
    said_by=(
        *(
            f"COM{n}"
            for n in (901, 902, 903, 904, 905, 907, 908, 909, 910, 911, 912, 914, 916, 917)
        ),
        "CMP905",
        "DAT909",
        "HST907",
        "HST912",
        "MOD904",
        "MOD905",
        "MOD906",
        "MOD907",
        "DAT906",
    ),
)
def exposed_unknown(case: Case) -> Found | None:
    """Communication runs while nothing computes; traces do not tell for which axis.

    Shown by: collective kernels with no compute beside them. Costs: that time at most. From one
    rank alone a slow link looks like a late neighbour: trace all ranks to tell them apart.
    Do: overlap it (buckets, prefetch), send less, or find the rank that others wait for.
    """
    us = exposed_us(case, "", *("tp", "cp", "ep", "pp"), *DATA_PARALLEL)
    if case.of_step(us) < UNKNOWN_SHARE:
        return None
    world = max((r.world_size or 1 for r in case.ranks), default=1)
    alone = case.across is None and world > 1
    hidden = overlapped_share(case)
    beside = f"; {hidden:.0%} of all communication runs beside compute" if hidden else ""
    return Found(
        message=f"Communication stands exposed for {time(us)} of each step{beside}.",
        proofs=some(of_parts(case, EXPOSED, what="exposed communication"), of_collectives(case)),
        lever=lever(
            case,
            "overlap communication with compute"
            + ("; trace every rank to see whether this one waits" if alone else ""),
            changes={"overlap_grad_reduce": True} if _reduces_most(case) else {},
            free="communication",
        ),
        takes_us={EXPOSED: us},
        confidence="medium" if alone else "high",
        guards=("from one rank, waiting cannot be told from transfer",) if alone else (),
    )


@cause(
    "COM907",
    "Many small collectives",
    kind=COMMUNICATION,
    source="PyTorch DDP (arXiv 2006.15704), section 3.2.3: gradient bucketing",
)
def tiny_collectives(case: Case) -> Found | None:
    """Collectives are so small and so many that latency is all they cost.

    Shown by: collectives below 1 MB, ten times as many a step as buckets of 25 MB would be (where
    sizes are not told: a hundred and more below 250 us), with hardly any compute beside them.
    Costs: their exposed time.
    Do: buckets (DDP bucket_cap_mb, workload.runtime.bucket_elements), coalesced operations.
    """
    found = [(n, c) for n, r in enumerate(case.ranks) for c in _small(r.collectives)]
    calls = sum(c.count / steps_of(case.ranks[n]) for n, c in found) / len(case.ranks)
    bare, total = sum(c.exposed_us for _, c in found), sum(c.sum_us for _, c in found)
    moved = sum((c.bytes or 0) * c.count / steps_of(case.ranks[n]) for n, c in found)
    sized = all(c.bytes for _, c in found)
    needed = max(1.0, moved / len(case.ranks) / BUCKET_BYTES)
    many = calls >= max(SOME_CALLS, TOO_MANY * needed) if sized else calls >= MANY_CALLS
    if not many or not total or 1 - bare / total > NO_OVERLAP:
        return None
    takes = _by_axis(case, [c for _, c in found])
    us = sum(takes.values())
    if case.of_step(us) < AXIS_SHARE:
        return None
    return Found(
        message=f"{calls:,.0f} collectives a step, all of them small, stand exposed for "
        f"{time(us)} of it.",
        proofs=some(
            of_collectives(case),
            of_ranks(f"{1 - bare / total:.0%} of their time runs beside compute", ()),
        ),
        lever=lever(
            case,
            "reduce in buckets (bucket_cap_mb of DDP, the framework's bucket size), or coalesce",
            changes={"workload.runtime.bucket_elements": 40_000_000},
            free="communication",
        ),
        takes_us=takes,
        confidence="high" if sized else "medium",
    )


def _small(collectives: tuple[Collective, ...]) -> list[Collective]:
    return [
        c
        for c in collectives
        if (c.bytes < SMALL_BYTES if c.bytes else c.median_us < SMALL_US)
        and not c.collective.startswith(("barrier", "wait"))
    ]


def _by_axis(case: Case, found: Sequence[Collective]) -> dict[str, float]:
    """Exposed time of some collectives (over all ranks and steps) as one step has it, by axis."""
    everything = sum(c.exposed_us for r in case.ranks for c in r.collectives)
    room = max(0.0, case.part_us(EXPOSED) - wait_us(case))
    takes: dict[str, float] = {}
    for item in found:
        name = part_of(axis_of(case, item.axis))
        takes[name] = takes.get(name, 0.0) + room * item.exposed_us / (everything or 1.0)
    return takes
