"""What the engine does otherwise than a plan says, told before it runs; one function a matter.

The numbers that are trained with stay the plan's; memory or time may differ from the prediction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.finding import Finding, Severity
from meshwright.cost.schedules import definition_of
from meshwright.model.architecture import Experts
from meshwright.plan.plan import Optimizer, Precision, Recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan

_TOLD_WIDTHS = (Optimizer.ADAM, Optimizer.MUON, Optimizer.SGD_MOMENTUM)  # states as parameters


def _widths(job: Job) -> Iterator[Finding]:
    """Widths that follow from the formats: gradients and states are kept as parameters are."""
    plan = job.plan
    if int(plan.precision) == Precision.FP32:  # everything is 4 bytes wide
        return
    kept = kept_bytes(plan)
    if int(plan.grad_bytes) != kept:
        yield _finding(
            "plan.grad_bytes",
            int(plan.grad_bytes),
            f"gradients are kept in {kept} bytes, as the parameters are that they update",
            hint=f"plan.grad_bytes = {kept}",
        )
    if int(plan.optimizer_state_bytes) != kept and int(plan.optimizer) in _TOLD_WIDTHS:
        yield _finding(
            "plan.optimizer_state_bytes",
            int(plan.optimizer_state_bytes),
            f"optimizer states are kept in {kept} bytes, as the parameters are",
            hint=f'plan.optimizer_state_bytes = {kept}, or plan.optimizer = "adam-8bit"',
        )
    if int(plan.reduce_bytes) not in (2, 4):
        yield _finding(
            "plan.reduce_bytes",
            int(plan.reduce_bytes),
            "gradients are reduced in the format of the products or in fp32",
            hint="plan.reduce_bytes = 2 or 4",
        )
    if int(plan.param_bytes) not in (2, 4):
        yield _finding(
            "plan.param_bytes",
            int(plan.param_bytes),
            "weights are gathered in 2 bytes, also where products are in fp8",
            hint="plan.param_bytes = 2",
        )


def kept_bytes(plan: Plan) -> int:
    """Width of the parameters that the optimizer updates."""
    is_wide = int(plan.precision) == Precision.FP32
    return 4 if is_wide or plan.master_weights or int(plan.param_bytes) == 4 else 2


def _vocabulary(job: Job) -> Iterator[Finding]:
    """Embedding and head as large as the vocabulary, logits in fp32."""
    plan, size = job.plan, job.model.vocab_size
    if int(plan.padded_vocab_size) not in (0, size):
        yield _finding(
            "plan.padded_vocab_size",
            int(plan.padded_vocab_size),
            f"embedding and head have the {size} rows of the vocabulary, none for padding",
            hint="plan.padded_vocab_size = 0",
        )
    if plan.fused_loss:
        yield _finding(
            "plan.fused_loss",
            True,
            "the loss is computed in fp32 from logits that are there, a chunk at a time",
            hint="plan.fused_loss = false; plan.loss_chunks = 8 makes them few",
        )


def _recomputed(job: Job) -> Iterator[Finding]:
    """Recomputation in groups of layers, and inputs cut over tp."""
    plan = job.plan
    if int(plan.recompute) != Recompute.FULL:
        return
    if plan.recompute_uniform and int(plan.recompute_layers) > 1:
        yield _finding(
            "plan.recompute_uniform",
            True,
            "every layer is recomputed by itself, from an input of its own",
            hint="plan.recompute_uniform = false, plan.recompute_layers = 0",
        )
    if plan.distribute_saved and int(plan.tp) > 1 and not plan.sequence_parallel:
        yield _finding(
            "plan.distribute_saved",
            True,
            "inputs of recomputed layers are kept whole on every tp rank",
            hint="plan.sequence_parallel = true cuts them, and all else between layers",
        )


def _resharding(job: Job) -> Iterator[Finding]:
    """ZeRO-3 under schedules that split the backward pass (`parallel.sharding.is_kept`)."""
    plan = job.plan
    if int(plan.pp) < 2 or int(plan.zero_stage) < 3 or not plan.reshard_after_forward:
        return
    if definition_of(int(plan.schedule), vpp=int(plan.vpp)).splits_backward:
        yield _finding(
            "plan.reshard_after_forward",
            True,
            "parameters stay gathered: torch cannot split the backward pass of others",
            hint='plan.schedule = "1f1b", or plan.reshard_after_forward = false',
        )


def _hosted(job: Job) -> Iterator[Finding]:
    """Optimizer states go where their parameters are."""
    plan = job.plan
    if plan.offload_params and float(plan.offload_optimizer) < 1:
        yield _finding(
            "plan.offload_optimizer",
            float(plan.offload_optimizer),
            "all optimizer states are on the host, with the parameters that are there",
            hint="plan.offload_optimizer = 1",
        )


def _adapters(job: Job) -> Iterator[Finding]:
    """Experts are frozen: they are no linear layers of their own."""
    plan = job.plan
    routed = any(isinstance(block.feed_forward, Experts) for block in job.model.kinds)
    if int(plan.lora_rank) and plan.lora_all_linear and routed:
        yield _finding(
            "plan.lora_all_linear",
            True,
            "routed experts get no adapters; attention, dense and shared networks do",
            hint="plan.lora_all_linear = false, for attention alone",
        )


def _kernels(job: Job) -> Iterator[Finding]:
    """Kernels and overlaps that torch chooses, or has not."""
    plan = job.plan
    cases = (
        ("flash_attention", not plan.flash_attention, "attention never makes its score matrix"),
        ("overlap_tp", bool(plan.overlap_tp), "products wait for tp's exchanges"),
        ("overlap_ep", bool(plan.overlap_ep), "products wait for ep's exchanges"),
        ("cuda_graph", bool(plan.cuda_graph), "no step is captured in a CUDA graph"),
        ("overlap_grad_reduce", not plan.overlap_grad_reduce, "FSDP2 reduces behind the backward"),
        ("overlap_param_gather", not plan.overlap_param_gather, "FSDP2 gathers a layer ahead"),
    )
    for field, is_other, message in cases:
        if is_other:
            value = bool(getattr(plan, field))
            word = "true" if not value else "false"
            yield _finding(f"plan.{field}", value, message, hint=f"plan.{field} = {word}")


CASES: tuple[Callable[[Job], Iterator[Finding]], ...] = (
    _widths,
    _vocabulary,
    _recomputed,
    _resharding,
    _hosted,
    _adapters,
    _kernels,
)


def _finding(key: str, value: object, message: str, *, hint: str) -> Finding:
    return Finding(
        message=message,
        severity=Severity.WARNING,
        key=key,
        value=value,
        consequence="the run is not laid out as predicted; its losses are those of the plan",
        hint=hint,
    )
