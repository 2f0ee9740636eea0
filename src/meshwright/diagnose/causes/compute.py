"""Causes in compute resources: matrix products, clocks, queues, variation, and none at all."""

from __future__ import annotations

from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING

import numpy as np

from meshwright.base.words import ranks_in_words
from meshwright.diagnose.causes.case import (
    LATE,
    UNTOLD,
    fact_us,
    largest,
    part_share,
)
from meshwright.diagnose.causes.exposed import WAIT
from meshwright.diagnose.causes.levers import lever
from meshwright.diagnose.causes.products import (
    device_of,
    is_misaligned,
    misaligned_us,
    slow_products,
)
from meshwright.diagnose.causes.proofs import of_kernels, of_parts, of_ranks, some, time
from meshwright.diagnose.causes.rule import Found, cause
from meshwright.diagnose.causes.stragglers import wait_us

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.rank import Rank

COMPUTE = "compute resources"
BOUND = 0.85  # of the step in compute: what else there is to win is small
SLOWER = 1.1  # kernels at the end of the window over the same at its start
WORTH = 0.03
WAITING = 0.15  # of the step for queued work that does not start
UNSTEADY = 0.15  # standard deviation over mean of the steps
STEPS_TO_VARY = 5
DEPENDENT = "idle_device_dependency"


@cause(
    "CMP901",
    "Bound by the device's computation",
    kind=COMPUTE,
    source="Making deep learning go brrr: the compute-bound regime",
    needs=("device",),
)
def compute_bound(case: Case) -> Found | None:
    """The device computes nearly all the time: nothing stands in its way.

    Shown by: compute in at least 85% of the step. Costs nothing that another schedule could win.
    To go faster: fewer operations, kernels that reach more of the peak, FP8, or faster devices.
    """
    if case.share("compute") < BOUND:
        return None
    return Found(
        message=f"The device computes {case.share('compute'):.0%} of each step.",
        proofs=some(of_parts(case, "compute", what="compute"), of_kernels(case, "gemm", "conv")),
        lever=lever(
            case, "compute less, in fewer bits, or on faster devices", command="meshwright plan"
        ),
        takes_us={},
    )


@cause(
    "CMP902",
    "Matrix products reach less than the device usually does",
    kind=COMPUTE,
    source="docs/concepts/time.md: measured kernel tables; NVIDIA matmul background guide",
    said_by=("CMP903", "CMP904", "CMP906", "MOD912"),
    planned=True,
    needs=("device",),
)
def slow_matmuls(case: Case) -> Found | None:
    """Products run below 60% of the rate that this device reaches at their shape and type.

    Shown by: recorded shapes with their kernels' time, beside the measured tables of the device.
    Costs: the time above the usual. Do: check clocks and power, TF32 or BF16, layouts, library
    versions; pad to 64 or 128.
    """
    found = slow_products(case)
    us = sum(p.excess_us for p in found)
    if case.of_step(us) < WORTH:
        return None
    worst = max(found, key=lambda p: p.excess_us)
    shape = worst.shape
    return Found(
        message=f"Matrix products take {time(us)} of each step more than they usually do on "
        f"{worst.device}.",
        proofs=(
            of_ranks(
                f"{shape.op} {shape.m} x {shape.n} x {shape.k} in {shape.dtype}: "
                f"{shape.tflops:.0f} TFLOP/s, usual are {worst.usual_tflops:.0f}",
                case.numbers[:1],
            ),
        ),
        lever=lever(case, "check clocks, power cap and types of the products; pad to 64 or 128"),
        takes_us={"compute": us},
        confidence="medium",
    )


@cause(
    "CMP903",
    "Shapes of matrix products that tensor cores cannot use well",
    kind=COMPUTE,
    source="NVIDIA deep learning performance guide: matrix dimensions divisible by 16 bytes",
    needs=("device",),
)
def misaligned_matmuls(case: Case) -> Found | None:
    """A dimension is no multiple of 8 elements, so that slower kernels run, or padded ones.

    Shown by: shapes such as a vocabulary of 50257, at a lower rate than the trace's other products.
    Costs: the difference to those. Do: pad vocabulary and widths to a multiple of 64 or 128.
    """
    us = misaligned_us(case)
    if case.of_step(us) < WORTH:
        return None
    shapes = [s for r in case.ranks if r.gemm for s in r.gemm.shapes if is_misaligned(s)]
    worst = max(shapes, key=lambda s: s.kernel_us)
    padded = [-(-d // 64) * 64 for d in (worst.m, worst.n, worst.k)]
    changes = {}
    if case.job is not None and case.job.model.vocab_size in (worst.m, worst.n, worst.k):
        changes = {"padded_vocab_size": -(-case.job.model.vocab_size // 128) * 128}
    return Found(
        message=f"Products with dimensions that 8 does not divide lose {time(us)} of each step.",
        proofs=(
            of_ranks(
                f"{worst.op} {worst.m} x {worst.n} x {worst.k}: {worst.tflops:.0f} TFLOP/s", ()
            ),
        ),
        lever=lever(case, f"pad to {padded[0]} x {padded[1]} x {padded[2]}", changes=changes),
        takes_us={"compute": us},
    )


@cause(
    "CMP904",
    "Matrix products in fp32 without TF32",
    kind=COMPUTE,
    source="PyTorch docs, torch.set_float32_matmul_precision; NVIDIA DLProf: AMP not used",
    needs=("device",),
)
def full_precision(case: Case) -> Found | None:
    """Products run on the fp32 units although the device has TF32 tensor cores.

    Shown by: sgemm and fp32 kernels. Costs: their time less that at the TF32 rate, at most.
    Do: torch.set_float32_matmul_precision("high"), or train in bf16.
    """
    us = fact_us(case, "fp32_matmul_us")
    gpu = device_of(case)
    if us is None or gpu is None or "tf32" not in gpu.peak_flops:
        return None
    saved = us * (1 - gpu.peak_flops["fp32"] / gpu.peak_flops["tf32"])
    if case.of_step(saved) < WORTH:
        return None
    return Found(
        message=f"Products in fp32 take {time(us)} of each step on a device with TF32.",
        proofs=(of_kernels(case, "gemm", "conv"),),
        lever=lever(
            case,
            'torch.set_float32_matmul_precision("high"), or bf16',
            changes={"precision": "bf16"},
        ),
        takes_us={"compute": saved},
        confidence="medium",
    )


@cause(
    "CMP906",
    "Kernels become slower while the run goes on",
    kind=COMPUTE,
    source="NVIDIA nvidia-smi docs: clocks_event_reasons; fail-slow in XPUTimer (arXiv 2502.05413)",
    needs=("device",),
)
def throttling(case: Case) -> Found | None:
    """The same kernels take longer at the end of the window than at its start.

    Shown by: their mean length in the last third over that in the first, at least 1.1.
    Usual reason: heat or the power cap lowers the clocks. Costs: compute above the first third's.
    Do: look at clocks_event_reasons, cooling, power limits; lock the clocks.
    """
    found = largest(case, "kernel_drift")
    if found is None or found[0] < SLOWER:
        return None
    drift, rank = found
    us = case.part_us("compute") * (1 - 2 / (1 + drift))
    if case.of_step(us) < WORTH:
        return None
    return Found(
        message=f"Kernels are {drift:.2f} times as long at the end of the trace as at its start.",
        proofs=(of_ranks("the same kernels, last third of the window over the first", (rank,)),),
        lever=lever(case, "check clocks_event_reasons, cooling and power limits; lock clocks"),
        takes_us={"compute": us},
        ranks=(rank,) if len(case.ranks) > 1 else (),
        confidence="medium",
    )


@cause(
    "CMP911",
    "The optimizer runs on the host",
    kind=COMPUTE,
    source="ZeRO-Offload (arXiv 2101.06840), section 4",
    needs=("device",),
)
def host_optimizer(case: Case) -> Found | None:
    """States lie in the host's memory and the CPU updates them while the device waits.

    Shown by: operators on CPU tensors inside Optimizer.step with the device idle.
    Costs: that time, and the copies. Do: keep states on the device where memory allows
    (offload_optimizer), shard them further (zero_stage, larger dp), offload a part only.
    """
    us, idle = fact_us(case, "optimizer_host_us"), fact_us(case, "optimizer_idle_us")
    us = min(us, idle) if us is not None and idle is not None else us
    if us is None or case.of_step(us) < WORTH:
        return None
    first = min(us, case.part_us(LATE[0]))
    return Found(
        message=f"The optimizer works on the host for {time(us)} of each step.",
        proofs=(of_parts(case, *LATE, what="launches come late", events=("Optimizer.step",)),),
        lever=lever(
            case,
            "keep optimizer states on the device, or offload only a part of them",
            changes={"offload_optimizer": 0.0},
        ),
        takes_us={LATE[0]: first, LATE[1]: min(us - first, case.part_us(LATE[1]))},
    )


@cause(
    "CMP913",
    "A launched graph waits before it starts",
    kind=COMPUTE,
    source="CUDA programming guide: graph upload and launch; HolisticTraceAnalysis#290",
    needs=("device",),
)
def graph_waits(case: Case) -> Found | None:
    """cudaGraphLaunch was called long before the graph's first kernel runs, and the device idles.

    Shown by: idle gaps that a kernel of a graph ends. The trace does not tell what it waits for:
    the graph's upload, an event of another stream, or a blocked copy.
    Do: upload graphs beforehand (cudaGraphUpload), look at events and copies before the launch.
    """
    us = fact_us(case, "graph_wait_us")
    us = None if us is None else min(us, case.part_us(DEPENDENT))
    if us is None or case.of_step(us) < WAITING:
        return None
    return Found(
        message=f"Launched graphs leave the device idle for {time(us)} of each step.",
        proofs=(of_parts(case, DEPENDENT, what="queued work waits", events=("cudaGraphLaunch",)),),
        lever=lever(case, "upload graphs beforehand; look for events and copies they wait on"),
        takes_us={DEPENDENT: us},
        confidence="low",
    )


@cause(
    "CMP914",
    "Queued work waits on the device",
    kind=COMPUTE,
    source="CUDA programming guide: streams and events",
    said_by=("CMP913",),
    needs=("device",),
)
def device_dependency(case: Case) -> Found | None:
    """Kernels were launched in time, and the device still idles before them.

    Shown by: idle gaps of 5 us and more that a kernel ends whose launch came before the gap.
    It waits for an event of another stream, a copy, or a resource; the trace does not say which.
    Do: look at the streams around the longest gap (`meshwright diagnose --perfetto`).
    """
    if case.share(DEPENDENT) < WAITING:
        return None
    return Found(
        message=f"Work that was launched in time waits {time(case.part_us(DEPENDENT))} of each "
        "step.",
        proofs=(of_parts(case, DEPENDENT, what="queued work waits"),),
        lever=lever(
            case,
            "look at the streams around the longest gap",
            command="meshwright diagnose TRACES --perfetto small.json",
        ),
        takes_us={DEPENDENT: case.part_us(DEPENDENT)},
        confidence="low",
    )


@cause(
    "CMP915",
    "Steps differ much in length",
    kind=COMPUTE,
    source="MegaScale (NSDI 24), section 5: stragglers and irregular garbage collection",
    needs=("ranks", "steps"),
    said_by=("DAT908", "HST902", "HST903", "HST905", "HST906", "HST912", "CMP906", "DAT906"),
)
def unsteady_steps(case: Case) -> Found | None:
    """The same work takes quite different times from step to step.

    Shown by: standard deviation of at least 15% of the mean over five steps or more.
    Costs: the mean step less the median. Do: look at the part that varies, named below; pin
    processes to cores, collect garbage at set steps, keep other jobs off the node.
    """
    rank = max(case.ranks, key=lambda r: len(r.device_steps))
    steady = rank.device_steps[1:-1]  # the profiler starts in the first and stops in the last
    lengths = [s.dur_us for s in steady]
    if len(lengths) < STEPS_TO_VARY or pstdev(lengths) < UNSTEADY * fmean(lengths):
        return None
    part, us = _varies(rank)
    if not part or case.of_step(us) < WORTH:
        return None
    longest = max(steady, key=lambda s: s.dur_us)
    return Found(
        message=f"Steps take {time(min(lengths))} to {time(max(lengths))}; what varies most is "
        f"{part.removeprefix('idle_').replace('_', ' ')}.",
        proofs=(of_ranks(f"longest is {longest.name}, {time(longest.dur_us)}", case.numbers[:1]),),
        lever=lever(
            case,
            "pin processes to cores, collect garbage at set steps, keep other jobs off the node",
            changes={"workload.runtime.manual_gc": True},
        ),
        takes_us={part: min(us, case.part_us(part))},
        confidence="low",
    )


def _varies(rank: Rank) -> tuple[str, float]:
    """The part whose mean over steps is most above its median, and by how much."""
    steady = rank.step_attributions[1:-1]
    names = dict.fromkeys(n for a in steady for n in a.parts_us if n not in UNTOLD[1:])
    found = []
    for name in names:
        values = [part_share(a, name) * a.window_us for a in steady]
        found.append((fmean(values) - median(values), name))
    us, part = max(found, default=(0.0, ""))
    return part, us


@cause(
    "CMP916",
    "Ranks have different numbers of micro-batches",
    kind=COMPUTE,
    source="meshwright rule DAT1: the global batch divides by dp * micro_batch_size",
    needs=("across", "job"),
)
def batch_remainder(case: Case) -> Found | None:
    """The global batch does not divide evenly, so some data-parallel ranks have less to do.

    Shown by: a global batch that dp * micro_batch_size does not divide, ranks that compute less,
    and wait in the reduction. Costs: their waiting.
    Do: a global batch that is a multiple of dp * micro_batch_size.
    """
    across, job = case.across, case.job
    if across is None or job is None:
        return None
    unit = int(job.plan.dp) * int(job.plan.micro_batch_size)
    compute = np.array(across.compute_us_by_rank)
    if job.workload.global_batch_size % unit == 0 or not len(compute) or not compute.mean():
        return None
    spread = float(compute.max() / compute.mean())
    us = min(wait_us(case), case.part_us("compute") * (spread - 1))
    if case.of_step(us) < WORTH:
        return None
    more = [r for r, c in zip(across.ranks, compute, strict=True) if c > 1.02 * compute.mean()]
    nearest = max(1, round(job.workload.global_batch_size / unit)) * unit
    return Found(
        message=f"A global batch of {job.workload.global_batch_size} does not divide by {unit}: "
        f"ranks with less to do wait {time(us)} of each step.",
        proofs=(of_ranks(f"{ranks_in_words(tuple(more))} compute more than the rest", more),),
        lever=lever(
            case, f"a global batch of {nearest}", changes={"workload.global_batch_size": nearest}
        ),
        takes_us={WAIT: us},
        ranks=tuple(more),
        confidence="medium",
    )
