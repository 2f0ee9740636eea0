"""Causes in device memory: calls of the allocator, retries, fragmentation, little room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.units import format_bytes
from meshwright.diagnose.causes.case import calls_a_step
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.products import device_of
from meshwright.diagnose.causes.proofs import of_kernels, of_parts, of_ranks, some
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Proof
    from meshwright.diagnose.logs.noun import MemorySnapshot

COMPUTE = "compute resources"
MALLOC, COPIES = "idle_malloc_free", "exposed_memory"
COPIED = 0.05  # of the step, as for batches
WORTH = 0.03  # of the step: once its cache is warm the allocator does not call the driver
FRAGMENTED = 0.2  # of what is reserved: expandable segments leave a few percent
FULL = 0.95  # of the device: NCCL and cuBLAS need some hundreds of MiB beside the allocator
_SETTING = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
_ALLOCATOR = "PyTorch docs, CUDA semantics: memory management"


def _smaller(case: Case) -> dict[str, object]:
    """A change that needs less memory, known from the plan."""
    plan = case.job.plan if case.job else None
    if plan is not None and int(plan.micro_batch_size) > 1:
        return {"micro_batch_size": int(plan.micro_batch_size) // 2}
    return {"recompute": "selective"}


@cause(
    "CMP907",
    "Device memory is allocated and freed within the step",
    kind=COMPUTE,
    source=_ALLOCATOR,
)
def allocation_in_step(case: Case) -> Found | None:
    """cudaMalloc and cudaFree wait for the device, so that it runs dry.

    Shown by: idle time inside these calls. A warm caching allocator makes none: memory is nearly
    full (freed and asked for again), fragmented, or sizes change with each batch.
    Do: expandable segments, a smaller micro-batch, equal shapes, no empty_cache() in the loop.
    """
    if case.share(MALLOC) < WORTH:
        return None
    calls = [calls_a_step(case, name) for name in ("malloc_calls", "free_calls")]
    text = f"{calls[0] or 0:.0f} allocations and {calls[1] or 0:.0f} frees a step"
    return Found(
        message=f"The device idles {case.share(MALLOC):.0%} of each step in its allocator.",
        proofs=some(
            of_parts(case, MALLOC, what="idle in calls", events=("cudaMalloc", "cudaFree")),
            of_ranks(text, ()) if any(c is not None for c in calls) else None,
        ),
        lever=lever(
            case,
            "expandable segments, equal shapes, a smaller micro-batch",
            command=_SETTING,
            free="malloc",
        ),
        takes_us={MALLOC: case.part_us(MALLOC)},
    )


@cause(
    "CMP908",
    "The allocator ran out of memory and tried again",
    kind=COMPUTE,
    source=_ALLOCATOR,
    needs=("memory",),
)
def allocator_retries(case: Case) -> Found | None:
    """An allocation failed, cached blocks were given back to the driver, and it was tried again.

    Shown by: segments freed in the middle of a memory snapshot. Each time the device stops.
    Do: expandable segments, a smaller micro-batch, more recompute or sharding.
    """
    worst = max(case.evidence.memory, key=lambda m: m.retries)
    if not worst.retries:
        return None
    return Found(
        message=f"The allocator gave segments back and asked again {worst.retries} times.",
        proofs=(_peak(worst),),
        lever=lever(
            case,
            f"set {_SETTING}; a smaller micro-batch or more recompute",
            changes=_smaller(case),
            command=_SETTING,
        ),
        takes_us={},
    )


@cause(
    "CMP909", "Reserved memory is fragmented", kind=COMPUTE, source=_ALLOCATOR, needs=("memory",)
)
def fragmentation(case: Case) -> Found | None:
    """Much memory is reserved and not in use at the peak, in pieces too small for what is asked.

    Shown by: a fifth and more of what is reserved not allocated at the peak of a snapshot.
    Costs: room for a larger micro-batch or less recompute. Do: expandable segments, equal shapes.
    """
    worst = max(case.evidence.memory, key=lambda m: m.fragmentation)
    if worst.fragmentation < FRAGMENTED:
        return None
    return Found(
        message=f"{worst.fragmentation:.0%} of {format_bytes(worst.reserved_bytes)} reserved are "
        "not in use at the peak.",
        proofs=(_peak(worst),),
        lever=lever(case, f"set {_SETTING}; keep shapes equal", command=_SETTING),
        takes_us={},
    )


@cause("CMP910", "Memory is nearly full", kind=COMPUTE, source=_ALLOCATOR, needs=("memory",))
def nearly_full(case: Case) -> Found | None:
    """The peak leaves so little room that one longer batch ends the run, or makes it retry.

    Shown by: memory reserved at the peak of at least 95% of the device.
    Do: more recompute or sharding, a smaller micro-batch, chunked loss; `meshwright plan`.
    """
    gpu = device_of(case)
    worst = max(case.evidence.memory, key=lambda m: max(m.reserved_bytes, m.peak_bytes))
    used = max(worst.reserved_bytes, worst.peak_bytes)
    if gpu is None or used < FULL * gpu.memory_bytes:
        return None
    return Found(
        message=f"{format_bytes(used)} of {format_bytes(gpu.memory_bytes)} are reserved at the "
        "peak.",
        proofs=(_peak(worst),),
        lever=lever(case, "a smaller micro-batch, or more recompute", changes=_smaller(case)),
        takes_us={},
    )


def _peak(snapshot: MemorySnapshot) -> Proof:
    """What the peak of a snapshot consists of."""
    largest = sorted(snapshot.by_category.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest)
    text = f"peak of {format_bytes(snapshot.peak_bytes)} on device {snapshot.device}"
    return of_ranks(f"{text}: {parts}" if parts else text, ())


@cause(
    "CMP917",
    "Copies stand exposed",
    kind=COMPUTE,
    source="CUDA C++ best practices guide: overlapping transfers and computation",
    said_by=("DAT904", "DAT905", "DAT907", "HST902", "CMP911"),
)
def exposed_copies(case: Case) -> Found | None:
    """The device only copies: to the host, from it, or within its own memory.

    Shown by: copies with neither compute nor communication beside them. Costs: their time.
    Do: copy on a stream of its own, fewer and larger copies, keep on the device what it needs.
    """
    us = case.part_us(COPIES)
    if case.of_step(us) < COPIED:
        return None
    return Found(
        message=f"Copies stand exposed for {us / case.step_us:.0%} of each step.",
        proofs=(of_parts(case, COPIES, what="exposed copies"), of_kernels(case, "memory")),
        lever=lever(case, "copy beside compute, or not at all", free="memory_copy"),
        takes_us={COPIES: us},
        confidence="medium",
    )
