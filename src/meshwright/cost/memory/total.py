"""Peak memory of a plan: the fullest pipeline rank at its fullest moment, with named terms."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.base.noun import dataclass
from meshwright.cost.memory.fsdp2 import rates_under
from meshwright.cost.memory.layer import LayerBytes, layer_bytes, shared_layer_bytes
from meshwright.cost.memory.stack import GIB, MemoryStack, memory_stack
from meshwright.cost.memory.stage import StageMemory, greatest, stage_memory_of
from meshwright.plan.stages import all_stage_layers, representative_stages, stage_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.plan.job import Job
    from meshwright.plan.plan import Plan
    from meshwright.plan.stages import StageLayers

HOST_BYTES_PER_RANK = 6.0 * GIB  # a Python process with torch, its pinned buffers and loaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a plan in bytes; scalars for one plan, columns for many.

    `peak_bytes` is what the framework's allocator hands out at the fullest moment of the fullest
    rank, `upper_bytes` its stated upper bound, `stage` that rank. `reserved_bytes` adds
    fragmentation, `device_bytes` the context and communication buffers outside the allocator;
    `required_bytes` is what a device must have: the upper bound with those. `host_bytes` is per
    node. `terms` names every part, `memory.stage<rank>.<part>` for one plan and
    `memory.<first|second|last>.<part>` for columns.
    """

    peak_bytes: Any
    upper_bytes: Any
    stage: Any
    reserved_bytes: Any
    device_bytes: Any
    required_bytes: Any
    host_bytes: Any
    terms: dict[str, Any]


def memory(job: Job, stack: MemoryStack | None = None) -> Memory:
    """Memory of the job's plan or plans."""
    stack = stack or memory_stack(job.stack)
    return stage_memory(job, shared_layer_bytes(job, stack), stack)


def stage_memory(
    job: Job,
    layers: LayerBytes,
    stack: MemoryStack | None = None,
    *,
    stages: Sequence[StageLayers] | None = None,
    detail: bool = True,
) -> Memory:
    """Memory from the bytes of the blocks: every rank of one plan, representatives of columns.

    `stages` are the layers of those ranks, if known. Without `detail` there are no terms, and the
    fullest rank is not sought.
    """
    stack = stack or memory_stack(job.stack)
    ranks = _ranks(job) if stages is None else tuple(("", stage.rank) for stage in stages)
    held = stages if stages is not None else _held(job, ranks)
    per_parameter = rates_under(job, stack)
    at_once = stages is None and _is_one(job.plan)
    columns = [stage_layers(job, np.arange(len(held)))] if at_once else held
    found = [
        stage_memory_of(job, layers, stage.rank, stage=stage, rates=per_parameter, stack=stack)
        for stage in columns
    ]
    if at_once:
        found = [_rank_of(found[0], rank) for rank in range(len(held))]
    return _fullest(job, layers, ranks, found, held=held, stack=stack, detail=detail)


def _rank_of(stages: StageMemory, rank: int) -> StageMemory:
    """One rank of a column of all ranks."""
    columns = {f.name: getattr(stages, f.name) for f in fields(stages)}
    return StageMemory(**{n: c[rank] if np.ndim(c) else c for n, c in columns.items()})


def _fullest(
    job: Job,
    layers: LayerBytes,
    ranks: tuple[tuple[str, Any], ...],
    stages: list[StageMemory],
    *,
    held: Sequence[StageLayers],
    stack: MemoryStack,
    detail: bool,
) -> Memory:
    """The fullest of the ranks, with the terms of all."""
    peak, fullest = stages[0].peak, ranks[0][1]
    for (_, rank), stage in zip(ranks[1:], stages[1:], strict=True):
        its_peak = stage.peak
        if detail:
            fullest = np.where(its_peak > peak, rank, fullest)
        peak = np.maximum(peak, its_peak)
    hosted = greatest([stage.hosted for stage in stages])
    bounded = peak
    if stack.upper_gathered_inputs > stack.gathered_inputs:
        bounded = greatest([stage.peak + stage.gathered_more for stage in stages])
    upper = stack.upper_bytes(bounded)
    terms: dict[str, Any] = {}
    for (name, rank), stage, own in zip(ranks, stages, held, strict=True):
        if not detail:
            break
        terms |= _terms(f"memory.{name}", stage, stack)
        if layers.operators and np.ndim(rank) == 0:
            terms |= _operator_terms(layers, own, name=name, stage=stage)
    return _memory(job, peak, upper, fullest, hosted=hosted, terms=terms, stack=stack)


def _ranks(job: Job) -> tuple[tuple[str, Any], ...]:
    """Names and ranks to evaluate."""
    plan = job.plan
    if _is_one(plan):
        return tuple((f"stage{rank}", rank) for rank in range(int(plan.pp)))
    return representative_stages(plan, job.model)


def _is_one(plan: Plan) -> bool:
    """True for one plan, False for a column of any length."""
    return len(plan) == 1 and np.ndim(plan.pp) == 0


def _held(job: Job, ranks: tuple[tuple[str, Any], ...]) -> Sequence[StageLayers]:
    """The layers of the ranks."""
    if _is_one(job.plan):
        return all_stage_layers(job)
    return [stage_layers(job, rank) for _, rank in ranks]


def _memory(
    job: Job,
    peak: Any,
    upper: Any,
    fullest: Any,
    *,
    hosted: Any,
    terms: dict[str, Any],
    stack: MemoryStack,
) -> Memory:
    """The totals around a peak."""
    reserved = peak * (1 + stack.fragmentation)
    context = stack.context_gib * GIB
    return Memory(
        peak_bytes=peak,
        upper_bytes=upper,
        stage=fullest,
        reserved_bytes=reserved,
        device_bytes=reserved + context,
        required_bytes=upper + context,
        host_bytes=(hosted + HOST_BYTES_PER_RANK) * job.cluster.gpus_per_node,
        terms=terms,
    )


TERM_OF_FIELD = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "fp8_copies": "weights.fp8_copies",
    "workspace": "workspace",
    "activations": "activations",
    "in_flight": "activations.in_flight",
    "gathered_more": "activations.gathered_more",
    "logits": "logits",
    "gathered_layer": "transient.gathered_layer",
    "gathered_model": "transient.gathered_model",
    "gathered_head": "transient.gathered_head",
    "recomputed": "transient.recomputed",
    "activation_gradients": "transient.gradients",
    "gather_buffer": "buffers.gather",
    "reduce_buffer": "buffers.reduce",
    "reduce_last": "buffers.reduce_last",
    "optimizer_temporaries": "transient.optimizer",
    "grad_copies": "buffers.gradient_copies",
    "buckets": "buffers.buckets",
    "weight_gradients": "buffers.weight_gradients",
    "sequence_buffers": "buffers.sequence",
    "pipeline_buffers": "buffers.pipeline",
    "waiting_weights": "buffers.waiting_weights",
    "head_backward": "transient.head_backward",
    "hosted": "host",
    "load": "moment.load",
    "forward": "moment.forward",
    "loss": "moment.loss",
    "backward": "moment.backward",
    "accumulated": "moment.accumulated",
    "step": "moment.step",
}


def _terms(prefix: str, stage: StageMemory, stack: MemoryStack) -> dict[str, Any]:
    """Named parts of one rank."""
    named = {
        f"{prefix}.{TERM_OF_FIELD[f.name]}": getattr(stage, f.name) for f in fields(StageMemory)
    }
    upper = stack.upper_bytes(stage.peak + stage.gathered_more)
    return named | {f"{prefix}.peak": stage.peak, f"{prefix}.upper": upper}


def _operator_terms(
    layers: LayerBytes, held: StageLayers, *, name: str, stage: StageMemory
) -> dict[str, Any]:
    """Activations of one rank by operator, all micro-batches in flight together."""
    parts: dict[str, Any] = {}
    for count, operators in zip(held.counts, layers.operators, strict=True):
        for operator, value in operators.items():
            key = f"memory.{name}.activations.{operator}"
            parts[key] = parts.get(key, 0.0) + value * count * stage.in_flight
    return parts


__all__ = ["Memory", "layer_bytes", "memory", "stage_memory"]
