"""Causes in the model's structure as it runs: kernels that are small, unfused or repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.pattern import pattern
from meshwright.base.units import GIB
from meshwright.diagnose.causes.case import LATE, calls_a_step, class_us, fact_us, largest
from meshwright.diagnose.causes.levers import changed_job, lever
from meshwright.diagnose.causes.products import few_rows_us
from meshwright.diagnose.causes.proofs import of_kernels, of_parts, of_ranks, some, time
from meshwright.diagnose.causes.rule import Found, cause

if TYPE_CHECKING:
    from meshwright.diagnose.causes.case import Case
    from meshwright.diagnose.diagnosis import Lever
    from meshwright.diagnose.rank import Rank

MODEL = "model structure"
LATE_SHARE = (
    0.1  # of the step; at 15 % the finding is certain, below the host may be late by chance
)
CERTAIN = 0.15
SMALL_KERNEL_US = 20.0  # about what a launch from Python costs: shorter kernels cannot hide it
FUSED = 0.5  # a chain of two kernels made one moves half the bytes; longer chains save more
MEMORY_BOUND = ("elementwise", "copy_layout", "norm", "reduce")
MATRIX = ("gemm", "attention", "conv")
WORTH = 0.05
LEAST_SEEN, ALL_SEEN = 0.2, 0.95  # of the kernels: with fewer nothing follows for the rest
RECOMPUTED = 0.15  # of compute: of whole layers a quarter, less beside head and optimizer
MANY_OPTIMIZER_KERNELS = 200  # a fused or foreach optimizer needs some dozens for any model
LOSS_SHARE = 0.1


def late_us(case: Case) -> float:
    """Time of a step that the device waits for launches."""
    return case.part_us(*LATE)


def in_few_gaps(case: Case) -> bool:
    """Whether most of that time is gaps of over a millisecond: launching is not that slow."""
    return (fact_us(case, "long_gap_us") or 0.0) > 0.5 * late_us(case)


def usual_kernel_us(case: Case) -> float | None:
    """Median length of the kernels of the slowest-fed rank; their mean where no median is known."""
    medians = [r.facts["median_kernel_us"] for r in case.ranks if "median_kernel_us" in r.facts]
    if medians:
        return min(medians)
    counted = [r for r in case.ranks if r.device_events]
    means = [r.kernel_time_sum_us / r.device_events for r in counted]
    return min(means) if means else None


@cause(
    "MOD901",
    "Many small kernels, launched one by one",
    kind=MODEL,
    source="PyTorch blog: accelerating PyTorch with CUDA graphs; XPUTimer (arXiv 2502.05413): "
    "issue latency",
    said_by=("DAT903", "HST901", "HST902", "HST903", "HST905", "HST906", "MOD909", "CMP911"),
    needs=("device",),
)
def small_kernels(case: Case) -> Found | None:
    """The host cannot launch kernels as fast as the device finishes them.

    Shown by: idle gaps that end with a kernel whose launch began after the gap did, or was on its
    way, most of them shorter than a millisecond, and kernels of no more than some 20 microseconds.
    Costs: these gaps.
    Do: CUDA graphs, torch.compile, fused optimizer and norms, a larger micro-batch.
    """
    kernel_us = usual_kernel_us(case)
    if kernel_us is None or kernel_us > SMALL_KERNEL_US or in_few_gaps(case):
        return None
    if case.share(*LATE) < LATE_SHARE:
        return None
    launched = calls_a_step(case, "kernels")
    many = f"{launched:,.0f} kernels a step, " if launched else ""
    return Found(
        message=f"The device waits {time(late_us(case))} of each step for small kernels' launches.",
        proofs=some(
            of_parts(case, *LATE, what="launches come late"),
            of_ranks(f"{many}half of them shorter than {time(kernel_us)}", ()),
            of_kernels(case, "elementwise", "copy_layout", "norm", "gemm"),
        ),
        lever=_graph_lever(case),
        takes_us={name: case.part_us(name) for name in LATE},
        confidence="high" if case.share(*LATE) >= CERTAIN else "medium",
    )


def _graph_lever(case: Case) -> Lever:
    plan = case.job.plan if case.job else None
    changes = {"cuda_graph": True} if plan is None or not plan.cuda_graph else {"compile": True}
    return lever(
        case,
        "launch less: CUDA graphs or torch.compile, fused optimizer and norms, "
        "a larger micro_batch_size",
        changes=changes,
        free="host_launch",
    )


@cause(
    "MOD902",
    "Memory-bound kernels outweigh the matrix products",
    kind=MODEL,
    source="Data movement is all you need (arXiv 2007.00072), section 3",
    said_by=("MOD903", "MOD908", "MOD909", "MOD910", "MOD911"),
    needs=("device",),
)
def memory_bound(case: Case) -> Found | None:
    """More time goes into reading and writing tensors than into multiplying them.

    Shown by: elementwise, copy, norm and reduction kernels sum to more than matrix products,
    convolutions and attention. Costs: what fusing chains of them saves, at least half of the
    elementwise and copy kernels' time.
    Do: torch.compile or fused kernels for norm, rotary embedding, activation, cross-entropy.
    """
    bound, products = class_us(case, *MEMORY_BOUND), class_us(case, *MATRIX)
    norms = fact_us(case, "unfused_norm_us") or 0.0  # which MOD910 speaks of
    fusible = FUSED * max(0.0, class_us(case, "elementwise", "copy_layout") - norms)
    if bound <= products or case.of_step(fusible) < WORTH:
        return None
    return Found(
        message=f"Memory-bound kernels take {time(bound)} of a step, matrix products and "
        f"attention {time(products)}.",
        proofs=(of_kernels(case, "elementwise", "copy_layout"),),
        lever=lever(
            case,
            "fuse: torch.compile, or fused norm, rotary embedding, activation and loss",
            changes={"compile": True},
        ),
        takes_us={"compute": fusible},
        confidence="medium",
    )


def _unfused_us(case: Case) -> float:
    """What one kernel for attention would save of a step.

    Of softmax and the products beside it half, the least that FlashAttention reports; where these
    are not known all of the softmax kernels, of which a fused kernel has none.
    """
    fact = fact_us(case, "unfused_attention_us")
    if fact is not None:
        return FUSED * fact
    return max((_softmax_share(r) for r in case.ranks), default=0.0) * case.part_us("compute")


_SOFTMAX = pattern(r"(?i)(?<!log_)(?<!log)softmax(?!.*log_?softmax)")  # log_softmax is a loss's


def _softmax_share(rank: Rank) -> float:
    found = (k for k in rank.top_kernels if _SOFTMAX.search(k.name))
    return sum(k.sum_us for k in found) / rank.kernel_time_sum_us if rank.kernel_time_sum_us else 0


@cause(
    "MOD903",
    "Attention is not fused",
    kind=MODEL,
    source="FlashAttention (arXiv 2205.14135), section 3",
    needs=("device",),
)
def unfused_attention(case: Case) -> Found | None:
    """Scores are written to memory, go through softmax, and are read again.

    Shown by: softmax kernels between batched matrix products. Costs: at least half of their time
    (FlashAttention is two to four times as fast), and memory that grows with the square of the
    sequence.
    Do: F.scaled_dot_product_attention, FlashAttention or cuDNN attention.
    """
    us = _unfused_us(case)
    if case.of_step(us) < WORTH:
        return None
    return Found(
        message=f"Attention that is not fused takes {time(us)} of each step too much.",
        proofs=(of_kernels(case, "softmax", "attention"),),
        lever=lever(
            case,
            "attention in one kernel: scaled_dot_product_attention, FlashAttention, cuDNN",
            changes={"flash_attention": True},
        ),
        takes_us={"compute": us},
    )


@cause(
    "MOD908",
    "Layers are recomputed in the backward pass",
    kind=MODEL,
    source="Reducing activation recomputation (arXiv 2205.05198), section 5",
)
def full_recompute(case: Case) -> Found | None:
    """Whole layers run forward again in the backward pass.

    Shown by: forward kernels launched by checkpointing inside backward, at least 15% of compute
    (full recompute of every layer makes it a quarter). Costs: that time.
    Do: recompute only attention or norms, or nothing, where memory allows: `meshwright plan`
    predicts it.
    """
    us, compute = fact_us(case, "recompute_us"), case.part_us("compute")
    if us is None:
        return None
    missing = largest(case, "without_launch_share")
    seen = 1 - (missing[0] if missing else 0.0)  # of the kernels, those that an operator launched
    us = us / seen if seen > LEAST_SEEN else 0.0
    if us < RECOMPUTED * compute or case.of_step(us) < WORTH:
        return None
    changes, guards = _less_recompute(case)
    if seen < ALL_SEEN:
        guards += (f"the trace has the launches of {seen:.0%} of the device's time only",)
    return Found(
        message=f"Recomputing the forward pass takes {time(us)} of each step "
        f"({us / compute:.0%} of compute).",
        proofs=some(
            of_ranks("forward operators run inside checkpointed backward nodes", ()),
            of_kernels(case, "gemm", "conv", "attention"),
        ),
        lever=lever(case, "recompute selectively or not at all", changes=changes),
        takes_us={"compute": us},
        guards=guards,
    )


def _less_recompute(case: Case) -> tuple[dict[str, str], tuple[str, ...]]:
    """The least recompute that the plan predicts to fit, and what is unsure about it."""
    if case.job is None:
        return {"recompute": "selective"}, ("without a plan, whether memory allows it is unknown",)
    from meshwright.cost.predict import evaluate

    room = case.job.cluster.gpu.memory_bytes
    for recompute in ("none", "selective"):
        changed = changed_job(case.job, {"recompute": recompute})
        if changed is not None and evaluate(changed).upper_bytes <= room:
            return {"recompute": recompute}, ()
    return {"recompute": "selective"}, (
        f"the plan predicts that less recompute does not fit in {room / GIB:.0f} GiB",
    )


@cause(
    "MOD909",
    "The optimizer updates tensors one by one",
    kind=MODEL,
    source="PyTorch docs, torch.optim: for-loop, foreach and fused implementations",
    needs=("device",),
)
def unfused_optimizer(case: Case) -> Found | None:
    """The update of each parameter is several kernels of its own.

    Shown by: hundreds of kernels launched inside Optimizer.step, which takes a notable part of the
    step. Costs: the device's idle time there, and half of the kernels' time.
    Do: fused=True (or foreach=True) of torch.optim, or the framework's fused optimizer.
    """
    calls = calls_a_step(case, "optimizer_kernels")
    idle, busy = fact_us(case, "optimizer_idle_us"), fact_us(case, "optimizer_device_us")
    if calls is None or calls < MANY_OPTIMIZER_KERNELS or idle is None:
        return None
    first = min(idle, case.part_us(LATE[0]))
    takes = {
        LATE[0]: first,
        LATE[1]: min(idle - first, case.part_us(LATE[1])),
        "compute": FUSED * (busy or 0.0),
    }
    if case.of_step(sum(takes.values())) < WORTH:
        return None
    return Found(
        message=f"The optimizer launches {calls:,.0f} kernels a step; the device idles "
        f"{time(idle)} meanwhile.",
        proofs=(
            of_parts(case, *LATE, what="launches come late", events=("Optimizer.step",)),
            of_ranks(f"its kernels take {time(busy or 0)} of a step", ()),
        ),
        lever=lever(
            case, "a fused optimizer: torch.optim.AdamW(..., fused=True) or the framework's"
        ),
        takes_us=takes,
    )


@cause(
    "MOD910",
    "Normalisation is not fused",
    kind=MODEL,
    source="PyTorch docs, nn.RMSNorm and nn.LayerNorm; Liger Kernel (arXiv 2410.10989)",
    needs=("device",),
)
def unfused_norm(case: Case) -> Found | None:
    """A norm runs as power, mean, reciprocal root and products, each a pass over memory.

    Shown by: pow and rsqrt kernels with the reductions and products beside them.
    Costs: all but about a quarter of their time, since one pass over memory replaces four.
    Do: nn.RMSNorm or nn.LayerNorm, fused norms of the framework, or torch.compile.
    """
    us = fact_us(case, "unfused_norm_us")
    if us is None or case.of_step(_NORM_SAVED * us) < WORTH:
        return None
    return Found(
        message=f"Norms that run as several kernels take {time(us)} of each step.",
        proofs=(of_kernels(case, "elementwise", "reduce"),),
        lever=lever(case, "one kernel for a norm, or torch.compile", changes={"compile": True}),
        takes_us={"compute": _NORM_SAVED * us},
        confidence="medium",
    )


_NORM_SAVED = 0.75


@cause(
    "MOD911",
    "The loss over the vocabulary is not fused",
    kind=MODEL,
    source="Cut your losses (arXiv 2411.09009), section 3; Liger Kernel (arXiv 2410.10989)",
    needs=("device",),
)
def unfused_loss(case: Case) -> Found | None:
    """Logits of the whole vocabulary are written, normalised and read again in fp32.

    Shown by: log_softmax and nll_loss kernels of at least a tenth of the step.
    Costs: half of that time, and memory for the logits.
    Do: fused or chunked cross-entropy; with tensor parallelism a loss on split logits.
    """
    us = fact_us(case, "loss_us")
    if us is None or case.of_step(us) < LOSS_SHARE:
        return None
    plan = case.job.plan if case.job else None
    split = plan is not None and int(plan.tp) > 1 and not plan.loss_parallel
    return Found(
        message=f"The loss over the vocabulary takes {time(us)} of each step.",
        proofs=(of_kernels(case, "attention", "reduce", "other"),),
        lever=lever(
            case,
            "a fused or chunked cross-entropy",
            changes={"loss_parallel": True} if split else {"fused_loss": True},
        ),
        takes_us={"compute": FUSED * us},
        confidence="medium",
    )


@cause(
    "MOD912",
    "Matrix products of few rows",
    kind=MODEL,
    source="NVIDIA matmul background guide: tile quantization; MegaBlocks (arXiv 2211.15841)",
    needs=("device",),
)
def few_rows(case: Case) -> Found | None:
    """Products have so few rows (tokens of an expert, a tiny micro-batch) that one tile holds them.

    Shown by: recorded shapes with a side of at most 128 below half of the rate of the trace's large
    products. Costs: the difference to that rate, at most.
    Do: a larger micro-batch, experts' products in one kernel (grouped_gemm), a smaller tp or ep.
    """
    us, worst = few_rows_us(case)
    if worst is None or case.of_step(us) < WORTH:
        return None
    plan = case.job.plan if case.job else None
    change: dict[str, Any] = {"workload.runtime.grouped_gemm": True}
    if plan is not None and int(plan.ep) == 1:
        change = {"micro_batch_size": 2 * int(plan.micro_batch_size)}
    shape = f"{worst.m} x {worst.n} x {worst.k}"
    return Found(
        message=f"Products of few rows take {time(us)} of each step more than large ones would.",
        proofs=(
            of_ranks(f"{worst.count} x {worst.op} {shape}: {worst.tflops:.0f} TFLOP/s", ()),
            of_kernels(case, "gemm"),
        ),
        lever=lever(
            case, "a larger micro-batch, or experts' products in one kernel", changes=change
        ),
        takes_us={"compute": us},
        confidence="medium",
    )
