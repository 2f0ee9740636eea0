"""Causes on the host: waits for the device, stalls, the profiler, traces that tell little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.diagnose.causes.case import LATE, calls_a_step, fact_us
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.model import SMALL_KERNEL_US, in_few_gaps, late_us, usual_kernel_us
from meshwright.diagnose.causes.proofs import of_parts, of_ranks, time
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case

HOST = "host"
LATE_SHARE = 0.1
EAGER_SHARE = 1 / 6  # of the step: models of some size spend a tenth between operators on CPUs
WORTH = 0.03
UNKNOWN = "idle_unknown_launch_not_in_trace"
UNFIT_SHARE = 0.1


_LATE_HOST = (
    "The device waits {} of each step for its host.",
    "find what the host does between launches: profile with_stack over a few steps",
)
_SLOW_START = (
    "The device idles {} of each step, most of it after the next kernel was launched.",
    "trace after more warm-up steps: first launches load code and upload graphs; then look at what "
    "the kernels after the longest gaps wait for",
)


@cause(
    "HST908",
    "The host launches late, and not for small kernels",
    kind=HOST,
    source="NVIDIA Nsight Systems: GPU gaps; XPUTimer (arXiv 2502.05413): issue latency",
    said_by=(
        "DAT903",
        "HST901",
        "HST902",
        "HST903",
        "HST904",
        "HST905",
        "HST906",
        "MOD901",
        "MOD909",
        "CMP911",
    ),
    needs=("device",),
)
def late_host(case: Case) -> Found | None:
    """The device waits for its next kernel longer than launching kernels takes.

    Shown by: idle gaps that end with a kernel launched after the gap began, and a median kernel
    above 20 us, or most of that time in gaps of over a millisecond. Something on the host takes
    long between launches: Python code, locks, logging, a busy CPU; where kernels were launched in
    time and start late, their code is loaded first, or they wait for what was not traced.
    Do: profile the host with stacks; bind to the GPU's NUMA node; move work off the loop.
    """
    kernel_us, few = usual_kernel_us(case), in_few_gaps(case)
    small = kernel_us is not None and kernel_us <= SMALL_KERNEL_US and not few
    if case.share(*LATE) < LATE_SHARE or small:
        return None
    slow = case.part_us(LATE[1]) > 0.5 * late_us(case)
    said, text = _SLOW_START if slow and few else _LATE_HOST
    return Found(
        message=said.format(time(late_us(case))),
        proofs=(of_parts(case, *LATE, what="launches come late"),),
        lever=lever(case, text, free="host_launch"),
        takes_us={name: case.part_us(name) for name in LATE},
        confidence="medium",
    )


@cause(
    "HST916",
    "Python and dispatch take much of a run on CPUs",
    kind=HOST,
    source="PyTorch docs, torch.compile: overhead of Python and of the dispatcher",
    same_as=("COM907",),
)
def eager_host(case: Case) -> Found | None:
    """On CPUs the host computes itself, and what it does between operators adds to the step.

    Shown by: stretches of the training thread in which no operator computes and nothing is sent, a
    sixth of the step and more; where collectives are many and small, they are the cause. Costs:
    that time. Do: compile the layers, larger micro-batches, fewer and larger tensors.
    """
    on_host = all(rank.computes_on == "host" for rank in case.ranks)
    if not on_host or case.share(*LATE) < EAGER_SHARE:
        return None
    us = late_us(case)
    return Found(
        message=f"Python and the dispatcher take {time(us)} of each step between operators.",
        proofs=(of_parts(case, *LATE, what="no operator computes and nothing is sent"),),
        lever=lever(
            case,
            "compile the layers, or make micro-batches larger",
            changes={"compile": True},
            free="host_launch",
        ),
        takes_us={name: case.part_us(name) for name in LATE},
        confidence="medium",
    )


@cause(
    "HST901",
    "The host waits for the device within the step",
    kind=HOST,
    source="PyTorch performance tuning guide: avoid unnecessary CPU-GPU synchronization",
    said_by=("DAT903", "HST902", "HST903", "HST905", "HST906", "CMP911"),
    needs=("device",),
)
def synchronising_calls(case: Case) -> Found | None:
    """A call such as .item(), .cpu() or cudaDeviceSynchronize stops the host until all is done.

    Shown by: such calls, after which the device idles until the host has launched again.
    Costs: that idle time. Do: keep values on the device, read the loss every N steps,
    non_blocking copies, no boolean of a tensor in Python.
    """
    us, calls = fact_us(case, "sync_idle_us"), calls_a_step(case, "sync_calls")
    if us is None or case.of_step(us) < WORTH or not calls:
        return None
    first = min(us, case.part_us(LATE[0]))
    return Found(
        message=f"{calls:,.0f} waits for the device a step leave it idle for {time(us)}.",
        proofs=(
            of_parts(
                case,
                *LATE,
                what="launches come late",
                events=("aten::item", "cudaStreamSynchronize", "cudaDeviceSynchronize"),
            ),
        ),
        lever=lever(
            case,
            "keep values on the device; read loss and norms every some steps",
            free="synchronization",
        ),
        takes_us={LATE[0]: first, LATE[1]: min(us - first, case.part_us(LATE[1]))},
    )


@cause(
    "HST909",
    "The trace does not tell why the device idles",
    kind=HOST,
    source="kineto: events of the first steps can miss; pytorch#192021",
)
def unfit_trace(case: Case) -> Found | None:
    """Kernels have no launch in the trace, so nothing says what they waited for.

    Shown by: more than a tenth of the step idle before such kernels: sampled or cut traces, a
    profiler that started without warm-up. Do: trace again with warm-up, several whole steps, and
    all ranks; `meshwright train --profile` does.
    """
    if case.share(UNKNOWN) < UNFIT_SHARE:
        return None
    count = sum(r.device_events_without_launch_in_trace for r in case.ranks)
    return Found(
        message=f"{time(case.part_us(UNKNOWN))} of each step are idle for a reason that the trace "
        "does not hold.",
        proofs=(
            of_parts(case, UNKNOWN, what="idle before kernels without a launch"),
            of_ranks(f"{count:,} device events have no launch in the trace", ()),
        ),
        lever=lever(
            case,
            "trace again: schedule(wait, warmup, active of 3 or more), all ranks",
            command="meshwright train --profile",
        ),
        takes_us={UNKNOWN: case.part_us(UNKNOWN)},
        confidence="low",
    )
