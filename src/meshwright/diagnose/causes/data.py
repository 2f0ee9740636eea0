"""Causes in data processing: loading, preprocessing, copies of batches, uneven sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.causes.case import (
    LATE,
    calls_a_step,
    fact_us,
    part_share,
    steps_of,
)
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.proofs import middle, of_parts, of_ranks, some, time, worst_step
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Proof
    from meshwright.diagnose.rank import Rank

DATA = "data processing"
LOADER = "idle_dataloader"
WORTH = (
    0.05  # of the step: a loader that keeps up leaves well under 1 % (kineto resnet50, 4 workers)
)
COPIED = 0.05  # exposed copies: 7.2 of the ground truth's rules has 5 %
MOST_WORKERS = 16  # more than that a training process seldom feeds from one node's cores
BURST = 5.0  # times the median step: one in many steps stalls, the others do not
MANY_COPIES = 8.0  # batches arrive in one or two copies; more are single tensors

_LOADER_SOURCE = "PyTorch docs, torch.utils.data: single- and multi-process loading; SPDL guide"


def _loader_us(case: Case) -> float:
    return case.part_us(LOADER)


def _in_process(case: Case) -> bool | None:
    """Whether the loader runs on the training thread; None when nothing tells."""
    fact = fact_us(case, "loader_in_process_us")
    if fact is not None:
        return fact > 0.5 * _loader_us(case)
    workers = case.job.workload.loading.num_workers if case.job else None
    return None if workers is None else workers == 0


def _loader_proofs(case: Case) -> tuple[Proof, ...]:
    counts = [r.cpu["dataloader"] for r in case.ranks if "dataloader" in r.cpu]
    union = sum(c.get("union_us", 0.0) / max(1, c.get("count", 1)) for c in counts)
    host = (
        of_ranks(f"a call of the loader takes {time(union / len(counts))} of the host's time", ())
        if counts
        else None
    )
    name = "enumerate(DataLoader)"
    return some(of_parts(case, LOADER, what="the device idles in the loader", events=[name]), host)


@cause(
    "DAT901",
    "The data loader runs on the training thread",
    kind=DATA,
    source=_LOADER_SOURCE,
    said_by=("DAT908", "DAT909"),
)
def loader_on_training_thread(case: Case) -> Found | None:
    """The loop fetches its batches itself, and the device has nothing to do meanwhile.

    Shown by: device idle inside enumerate(DataLoader) of a single-process iterator (num_workers=0).
    Costs: the whole time of decoding, tokenizing and collating a batch, every step.
    Do: workers (num_workers of 2 or more), prefetch_factor 2 to 4, persistent_workers, pin_memory;
    tokenize and pack before training (`meshwright data build`).
    """
    if case.share(LOADER) < WORTH or _in_process(case) is False:
        return None
    known = _in_process(case) is True
    return Found(
        message=f"The data loader stops the device for {time(_loader_us(case))} of each step"
        + (", on the training thread itself." if known else "."),
        proofs=_loader_proofs(case),
        lever=lever(
            case,
            "load in worker processes ahead of the step: num_workers, prefetch_factor, "
            "persistent_workers and pin_memory of the DataLoader",
            changes={"workload.loading.num_workers": 4},
            free="data_loading",
        ),
        takes_us={LOADER: _loader_us(case)},
        confidence="high" if known else "medium",
    )


@cause(
    "DAT902",
    "Too few or too slow workers of the data loader",
    kind=DATA,
    source=_LOADER_SOURCE,
    said_by=("DAT908", "DAT909"),
)
def loader_workers_too_slow(case: Case) -> Found | None:
    """Worker processes load the batches, and the loop still waits for the next one.

    Shown by: device idle inside enumerate(DataLoader) of a multi-process iterator in most steps.
    Costs: what the workers lack. Do: more workers (up to the node's cores over its GPUs), a larger
    prefetch_factor, batches tokenized and packed beforehand (`meshwright data build`), storage that
    is local or memory-mapped.
    """
    if case.share(LOADER) < WORTH or _in_process(case) is not False:
        return None
    workers = case.job.workload.loading.num_workers if case.job else None
    wanted = min(MOST_WORKERS, 2 * (workers or 4))
    return Found(
        message=f"The loader's workers are {time(_loader_us(case))} late in each step.",
        proofs=_loader_proofs(case),
        lever=lever(
            case,
            "more workers and a larger prefetch_factor, or data that is tokenized beforehand",
            changes={"workload.loading.num_workers": wanted},
            free="data_loading",
        ),
        takes_us={LOADER: _loader_us(case)},
    )


@cause(
    "DAT903",
    "Preprocessing on the path of the step",
    kind=DATA,
    source="PyTorch performance tuning guide: asynchronous data loading and augmentation",
)
def preprocessing_in_step(case: Case) -> Found | None:
    """The host prepares the batch (decodes, resizes, tokenizes, collates) before it launches work.

    Shown by: the device idles while Python is in frames such as preprocess, collate or tokenize.
    A view of the kernels' span alone does not show it, since it lies before the first kernel.
    Do: move it into the loader's workers or onto the GPU, or do it once before training.
    """
    us = fact_us(case, "preprocess_us")
    if us is None or case.of_step(us) < WORTH:
        return None
    return Found(
        message=f"Preprocessing on the host holds the device up for {time(us)} of each step.",
        proofs=(
            of_parts(
                case, *LATE, what="launches come late", events=("preprocess", "collate", "tokenize")
            ),
        ),
        lever=lever(
            case,
            "preprocess in the loader's workers, on the GPU, or once before training",
            changes={"workload.loading.num_workers": 4},
            command="meshwright data build",
            free="data_loading",
        ),
        takes_us=_from_late(case, us),
    )


def _from_late(case: Case, us: float) -> dict[str, float]:
    """A portion of the time of late launches, from the waits for the call first."""
    first = min(us, case.part_us(LATE[0]))
    return {LATE[0]: first, LATE[1]: min(us - first, case.part_us(LATE[1]))}


@cause(
    "DAT904",
    "Batches are copied from pageable memory",
    kind=DATA,
    source="CUDA C++ best practices guide, section on pinned memory; PyTorch docs, pin_memory",
)
def pageable_copies(case: Case) -> Found | None:
    """Copies from pageable memory go through a staging buffer and block the host.

    Shown by: exposed copies to the device named "Pageable -> Device".
    Costs: the copy at a fraction of the link's rate, and the host's wait for it.
    Do: pin_memory=True in the loader, .to(device, non_blocking=True), a prefetch stream.
    """
    us = fact_us(case, "h2d_pageable_us")
    if us is None or case.of_step(us) < COPIED:
        return None
    return Found(
        message=f"Copies from pageable memory take {time(us)} of each step, with nothing beside.",
        proofs=(of_parts(case, "exposed_memory", what="exposed copies", events=_HTOD),),
        lever=lever(
            case,
            "pin_memory=True in the DataLoader and non_blocking=True in .to()",
            free="memory_copy",
        ),
        takes_us={"exposed_memory": us},
    )


_HTOD = ("Memcpy HtoD (Pageable -> Device)",)


@cause(
    "DAT905",
    "Batches are copied when the step already waits for them",
    kind=DATA,
    source="PyTorch tutorial on pin_memory and non_blocking; NVIDIA Apex data prefetcher",
    said_by=("DAT904", "DAT907"),
)
def late_copies(case: Case) -> Found | None:
    """The batch crosses to the device at the start of the step and nothing computes meanwhile.

    Shown by: exposed copies from host to device, pinned or not, of at least 5% of the step.
    Do: copy the next batch on a stream of its own while this one computes.
    """
    us = fact_us(case, "h2d_exposed_us")
    if us is None or case.of_step(us) < COPIED:
        return None
    return Found(
        message=f"Copies to the device take {time(us)} of each step, with nothing beside.",
        proofs=(of_parts(case, "exposed_memory", what="exposed copies", events=("Memcpy HtoD",)),),
        lever=lever(
            case, "copy the next batch on a prefetch stream during this step", free="memory_copy"
        ),
        takes_us={"exposed_memory": us},
    )


@cause(
    "DAT907",
    "A batch arrives in many small copies",
    kind=DATA,
    source="CUDA C++ best practices guide: batching small transfers",
    said_by=("DAT904",),
)
def many_copies(case: Case) -> Found | None:
    """Each tensor of each micro-batch is copied by itself, so that calls cost more than bytes.

    Shown by: many copies from host to device a step, exposed, each far below a millisecond.
    Do: collate into one pinned buffer, copy all micro-batches of a step at once.
    """
    us, calls = fact_us(case, "h2d_exposed_us"), calls_a_step(case, "h2d_calls")
    if us is None or calls is None or case.of_step(us) < COPIED:
        return None
    if calls < MANY_COPIES or us / calls > 1000:
        return None
    return Found(
        message=f"{calls:.0f} copies to the device a step take {time(us)} with nothing beside.",
        proofs=(of_parts(case, "exposed_memory", what="exposed copies", events=("Memcpy HtoD",)),),
        lever=lever(
            case,
            "one pinned buffer and one copy for all tensors and micro-batches of a step",
            free="memory_copy",
        ),
        takes_us={"exposed_memory": us},
    )


@cause(
    "DAT908",
    "The loader stalls in some steps only",
    kind=DATA,
    source="PyTorch docs, torch.utils.data: persistent_workers",
    needs=("ranks", "steps"),
)
def loader_bursts(case: Case) -> Found | None:
    """Most batches are there in time; in some steps the loop waits long for one.

    Shown by: idle time in the loader of a few steps is several times that of the median step.
    Usual reasons: workers that start again with each epoch, a new shard or file, a cold cache.
    Do: persistent_workers, larger prefetch_factor, read-ahead of the next shard.
    """
    found = [(rank, _burst(rank)) for rank in case.ranks]
    rank, excess_us = max(found, key=lambda pair: pair[1])
    if not excess_us or case.of_step(excess_us) < WORTH:
        return None
    step = worst_step(rank, LOADER)
    at = rank.device_steps[step] if step is not None and step < len(rank.device_steps) else None
    text = f"the loader takes {time(excess_us)} a step on average, nearly all in a few of them"
    return Found(
        message="The loader stalls a few steps, the others get their batch in time.",
        proofs=(
            of_parts(case, LOADER, what="the device idles in the loader"),
            of_ranks(f"{text}; worst in {at.name}" if at else text, ()),
        ),
        lever=lever(
            case,
            "persistent_workers=True, a larger prefetch_factor, read-ahead of the next shard",
            free="data_loading",
        ),
        takes_us={LOADER: min(excess_us, _loader_us(case))},
    )


def _burst(rank: Rank) -> float:
    """Mean time over the median in the loader, where the median step hardly waits."""
    waits = [part_share(a, LOADER) * a.window_us for a in rank.step_attributions]
    if len(waits) < 3 or max(waits) < BURST * max(middle(waits), 1.0):
        return 0.0
    return sum(waits) / steps_of(rank) - middle(waits)
