"""Causes in how communication and computation share the device and the network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meshwright.base.words import ranks_in_words
from meshwright.diagnose.causes.case import axis_of, fact_us, largest, steps_of
from meshwright.diagnose.causes.exposed import (
    DATA_PARALLEL,
    EXPOSED,
    exposed_us,
    first_of,
    overlapped_share,
    part_of,
)
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.links import USUAL, slow_link_takes_us, slow_links
from meshwright.diagnose.causes.proofs import of_collectives, of_parts, of_ranks, some, time
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Collective

COMMUNICATION = "communication"
WORTH = 0.05
NO_OVERLAP = 0.1  # of data-parallel communication beside compute: bucketed DDP hides most of it
SLOWER = 1.1  # kernels beside communication over the same kernels alone
DIFFERENT = 2.0  # communication takes a part of the SMs only: beyond, the work is another
NEARLY_ALL = 0.8  # of what stands exposed
LITTLE = 0.03
BROADCAST_SHARE = 0.02


@cause(
    "COM908",
    "Gradient communication overlaps with nothing",
    kind=COMMUNICATION,
    source="PyTorch DDP (arXiv 2006.15704), section 3.2.3",
    said_by=("COM907", "COM909", "COM910", "COM911"),
)
def no_overlap(case: Case) -> Found | None:
    """Gradients are reduced (or parameters gathered) only while the device does nothing else.

    Shown by: less than a tenth of the data-parallel communication runs beside compute.
    Costs: all of it. Do: overlap_grad_reduce and overlap_param_gather, DDP with buckets instead of
    a reduction after backward, CUDA_DEVICE_MAX_CONNECTIONS as the framework asks.
    """
    hidden = overlapped_share(case, *DATA_PARALLEL)
    us = exposed_us(case, *DATA_PARALLEL)
    if hidden is None or hidden >= NO_OVERLAP or _is_beside(case):
        return None
    us = min(us, case.part_us("compute"))  # no more than that can hide it
    if case.of_step(us) < WORTH:
        return None
    return Found(
        message=f"Only {hidden:.0%} of data-parallel communication runs beside compute; {time(us)} "
        "of each step stand exposed.",
        proofs=some(
            of_parts(case, EXPOSED, what="exposed communication"),
            *(of_collectives(case, axis=axis) for axis in DATA_PARALLEL),
        ),
        lever=_overlap_lever(case),
        takes_us={part_of("dp"): us},
    )


def _overlap_lever(case: Case) -> Any:
    plan = case.job.plan if case.job else None
    changes = {"overlap_grad_reduce": True, "overlap_param_gather": True}
    if plan is not None and plan.overlap_grad_reduce and plan.overlap_param_gather:
        text = "the plan asks for overlap and the run has none: check buckets, streams and "
        return lever(case, text + "CUDA_DEVICE_MAX_CONNECTIONS", free="dp")
    return lever(case, "reduce gradients during backward, in buckets", changes=changes, free="dp")


@cause(
    "COM909",
    "Gradients are reduced after the backward pass",
    kind=COMMUNICATION,
    source="PyTorch DDP (arXiv 2006.15704), section 3.2.3; Megatron-LM: overlap-grad-reduce",
    said_by=("COM911",),
)
def reduction_at_end(case: Case) -> Found | None:
    """The last kernel of backward is over, and only then most of the reduction begins.

    Shown by: exposed all-reduces or reduce-scatters between the last kernel of backward and the
    optimizer. Costs: their time, as far as backward could have hidden it.
    Do: overlap_grad_reduce, several buckets, no reduction after the loop over micro-batches.
    """
    us = fact_us(case, "grad_reduce_tail_us")
    if us is None or case.of_step(us) < WORTH:
        return None
    bare, hidden = exposed_us(case, "", *DATA_PARALLEL), overlapped_share(case, *DATA_PARALLEL)
    us = min(us, bare, _hides_us(case))
    all_along = hidden is not None and hidden < NO_OVERLAP and us < NEARLY_ALL * bare
    if case.of_step(us) < WORTH or all_along:
        return None
    return Found(
        message=f"Gradients are reduced for {time(us)} of each step after backward is over.",
        proofs=some(
            of_parts(case, EXPOSED, what="exposed communication"),
            of_collectives(case),
        ),
        lever=_overlap_lever(case),
        takes_us=first_of(case, us, "dp", ""),
    )


def _is_beside(case: Case) -> bool:
    """Whether most of backward has communication beside it: it overlaps, and there is too much."""
    backward, beside = fact_us(case, "backward_device_us"), fact_us(case, "under_comm_us")
    return bool(backward and beside and beside > 0.5 * backward)


def _hides_us(case: Case) -> float:
    """Compute of backward that could hide communication and does not; without bound if unknown."""
    backward, beside = fact_us(case, "backward_device_us"), fact_us(case, "under_comm_us")
    return math.inf if backward is None else max(0.0, backward - (beside or 0.0))


@cause(
    "COM910",
    "Parameters are gathered when they are needed",
    kind=COMMUNICATION,
    source="PyTorch FSDP (arXiv 2304.11277), section 4.3: prefetching",
    said_by=("COM911",),
)
def gathers_not_prefetched(case: Case) -> Found | None:
    """Each layer waits for its own all-gather instead of finding its parameters there.

    Shown by: exposed all-gathers of parameters (FSDP, ZeRO-3). Costs: what a prefetch would hide.
    Do: forward and backward prefetch, reshard_after_forward=False where memory allows, larger
    units, HSDP (dp_replicate) so that gathers stay inside a node, ZeRO-2.
    """
    us = fact_us(case, "gather_exposed_us")
    us = None if us is None else min(us, exposed_us(case, "", *DATA_PARALLEL))
    if us is None or case.of_step(us) < WORTH:
        return None
    plan = case.job.plan if case.job else None
    changes: dict[str, Any] = {"reshard_after_forward": False}
    if plan is not None and not plan.reshard_after_forward:
        changes = {"zero_stage": 2}
    return Found(
        message=f"All-gathers of parameters stand exposed for {time(us)} of each step.",
        proofs=some(
            of_parts(case, EXPOSED, what="exposed communication"),
            of_collectives(case),
        ),
        lever=lever(case, "prefetch the next layer's parameters", changes=changes, free="dp"),
        takes_us=first_of(case, us, "dp", ""),
    )


@cause(
    "COM911",
    "A link carries less than it should",
    kind=COMMUNICATION,
    source="nccl-tests, doc/PERFORMANCE.md: bus bandwidth; docs/concepts/time.md: link curves",
    needs=("across",),
    said_by=("COM907", "COM921", "COM922", "COM923"),
)
def slow_link(case: Case) -> Found | None:
    """The last rank to arrive does not wait, and still the transfer takes twice the usual time.

    Shown by: bus bandwidth of large collectives from their last arriver, far below that of other
    groups like it, of the plan's link at this size, or of the device's usual node.
    Costs: the exposed excess.
    Do: check cables, NVLink and NIC counters, NCCL's transport, and how ranks lie on nodes.
    """
    found, takes = slow_links(case), slow_link_takes_us(case)
    us = sum(takes.values())
    if not found or case.of_step(us) < LITTLE:
        return None
    worst = found[0]
    rate = worst.rate
    name = ranks_in_words(rate.ranks)
    return Found(
        message=f"{rate.collective} among {name} reaches {rate.busbw_GBps:.3g} GB/s, "
        f"{worst.share:.0%} of {worst.by}.",
        proofs=(
            of_ranks(
                f"{rate.count} transfers of {rate.bytes / 1e6:.3g} MB in group {rate.group}, "
                f"spread {rate.spread:.2g}",
                rate.ranks,
            ),
        ),
        lever=lever(
            case,
            f"check the links of {name}: cables, NVLink and NIC counters, transport, placement",
            command="NCCL_DEBUG=INFO, then meshwright diagnose --nccl-log nccl.log",
        ),
        takes_us=takes,
        ranks=rate.ranks,
        confidence="low" if worst.by == USUAL else "medium",
        guards=("without a plan the node is taken to be the usual one",)
        if worst.by == USUAL
        else (),
    )


@cause(
    "COM912",
    "All-to-alls of experts cross nodes",
    kind=COMMUNICATION,
    source="DeepSeek-V3 (arXiv 2412.19437), section 3.2.2: node-limited routing",
    needs=("across",),
    said_by=("COM911",),
)
def experts_across_nodes(case: Case) -> Found | None:
    """The exchange between experts runs at the network's rate, not at the node's.

    Shown by: exposed all-to-alls of groups that span nodes. Costs: their exposed time.
    Do: ep no larger than a node, node-limited routing, DeepEP or DualPipe to overlap it.
    """
    across = case.across
    if across is None:
        return None
    wide = [r for r in across.links if r.spans_nodes and "alltoall" in r.collective.lower()]
    wide += [r for r in across.links if r.spans_nodes and r.axis == "ep" and r not in wide]
    us = exposed_us(case, "ep") if wide else 0.0
    if not wide or case.of_step(us) < WORTH:
        return None
    changes: dict[str, Any] = {"overlap_ep": True}
    if case.job is not None and int(case.job.plan.ep) > case.job.cluster.scale_up_domain:
        changes = {"ep": case.job.cluster.scale_up_domain}
    return Found(
        message=f"All-to-alls across nodes stand exposed for {time(us)} of each step.",
        proofs=some(
            of_ranks(
                f"{wide[0].collective} over {len(wide[0].ranks)} ranks: "
                f"{wide[0].busbw_GBps:.3g} GB/s",
                wide[0].ranks,
            ),
            of_collectives(case, axis="ep"),
        ),
        lever=lever(
            case, "keep ep inside a node, or overlap the exchange", changes=changes, free="ep"
        ),
        takes_us={part_of("ep"): us},
    )


@cause(
    "COM913",
    "Communication slows the kernels beside it",
    kind=COMMUNICATION,
    source="DeepSeek-V3 (arXiv 2412.19437), section 3.2.1: SMs for communication",
    needs=("device",),
)
def contention(case: Case) -> Found | None:
    """Hidden communication is not free: it takes SMs and memory bandwidth from compute.

    Shown by: kernels with communication beside them take at least 1.1 times as long as the same
    kernels alone. Costs: the difference.
    Do: fewer channels (NCCL_MAX_CTAS), copy-engine or symmetric-memory collectives, SHARP.
    """
    slower, beside = largest(case, "under_comm_slowdown"), fact_us(case, "under_comm_us")
    if slower is None or beside is None or not SLOWER <= slower[0] <= DIFFERENT:
        return None
    us = beside * (1 - 1 / slower[0])
    if case.of_step(us) < LITTLE:
        return None
    return Found(
        message=f"Kernels beside communication take {slower[0]:.2f} times as long as alone, "
        f"{time(us)} of each step.",
        proofs=some(
            of_ranks(f"{time(beside)} of compute a step run beside communication", (slower[1],)),
            of_collectives(case),
        ),
        lever=lever(case, "give communication fewer SMs", command="NCCL_MAX_CTAS=8"),
        takes_us={"compute": us},
        confidence="medium",
    )


@cause(
    "COM916",
    "The dispatcher of experts waits",
    kind=COMMUNICATION,
    source="DeepEP README: notify and dispatch; NVIDIA Megatron-Bridge profiling checklist",
)
def dispatch_waits(case: Case) -> Found | None:
    """Kernels that announce the counts of tokens wait for the slowest rank; that is no transfer.

    Shown by: exposed notify kernels (DeepEP and its like). Costs: that wait.
    Do: balance experts, fixed capacity so that no counts are exchanged, overlap of two
    micro-batches.
    """
    us = fact_us(case, "dispatch_wait_us")
    us = None if us is None else min(us, case.part_us(EXPOSED))
    if us is None or case.of_step(us) < LITTLE:
        return None
    return Found(
        message=f"The dispatcher waits for counts of tokens for {time(us)} of each step.",
        proofs=(
            of_parts(case, EXPOSED, what="exposed communication", events=("notify_dispatch",)),
        ),
        lever=lever(
            case,
            "balance experts, or overlap the dispatch with another micro-batch",
            changes={"overlap_ep": True},
            free="ep",
        ),
        takes_us=first_of(case, us, "ep", ""),
        confidence="medium",
    )


@cause(
    "COM917",
    "Buffers or parameters are broadcast every step",
    kind=COMMUNICATION,
    source="PyTorch docs, DistributedDataParallel: broadcast_buffers",
)
def broadcasts(case: Case) -> Found | None:
    """Before each forward pass rank 0 sends its buffers (or parameters) to all others.

    Shown by: broadcasts in every step that nothing hides. Costs: their exposed time.
    Do: broadcast_buffers=False, SyncBatchNorm only where needed, one coalesced broadcast.
    """
    found = [(r, c) for r in case.ranks for c in r.collectives if _is_broadcast(c)]
    regular = [(r, c) for r, c in found if c.count >= steps_of(r)]
    everything = sum(c.exposed_us for r in case.ranks for c in r.collectives)
    bare = sum(c.exposed_us for _, c in regular)
    us = case.part_us(EXPOSED) * bare / everything if everything else 0.0
    if case.of_step(us) < BROADCAST_SHARE:
        return None
    calls = sum(c.count / steps_of(r) for r, c in regular) / len(case.ranks)
    return Found(
        message=f"{calls:.0f} broadcasts a step stand exposed for {time(us)} of it.",
        proofs=some(of_collectives(case, axis=regular[0][1].axis)),
        lever=lever(case, "broadcast_buffers=False in DistributedDataParallel"),
        takes_us=first_of(case, us, axis_of(case, regular[0][1].axis), ""),
    )


def _is_broadcast(collective: Collective) -> bool:
    return "broadcast" in collective.collective.lower()
