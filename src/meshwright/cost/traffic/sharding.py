"""FSDP2: gathered parameters, scattered gradients, sums over replicas.

A unit (the embedding, each layer, a layer's experts, what is left of a stage) is gathered and
reduced in one call. Source: torch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py,
as train/parallel/sharding.py applies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.noun import dataclass
from meshwright.cost.schedules import definition_of
from meshwright.cost.traffic.flows import Piece
from meshwright.cost.traffic.layout import layers_of, widths_of
from meshwright.cost.traffic.shapes import (
    Weight,
    dense_weights,
    embedding_weights,
    expert_weights,
    final_weights,
)
from meshwright.plan.degrees import degrees_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.cost.traffic.layout import Chunk, Widths
    from meshwright.model.architecture import Block
    from meshwright.plan.degrees import Degrees
    from meshwright.plan.job import Job

SOURCE = "torch 2.13 FSDP2, one all-gather and one reduce-scatter a unit; arXiv 2304.11277"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Parameters that FSDP2 gathers together, `count` times alike, sharded along `axis`.

    `stays` marks those that stay gathered from forward to backward whatever the plan says.
    """

    part: str
    weights: tuple[Weight, ...]
    count: int
    axis: str = "fsdp"
    stays: bool = False


def sharding(job: Job, chunk: Chunk) -> list[Piece]:
    """Traffic of sharded and replicated parameters of one stage on one rank and step."""
    degrees, widths = degrees_of(job.plan), widths_of(job.plan)
    if not is_wrapped(job, chunk):
        return []
    return [
        piece
        for unit in units(job, chunk)
        for piece in _of_unit(job, chunk, unit, degrees=degrees, widths=widths)
    ]


def is_wrapped(job: Job, chunk: Chunk) -> bool:
    """Whether FSDP2 is there: several replicas of anything on the stage, or two number formats."""
    degrees = degrees_of(job.plan)
    routed = any(block.is_moe for block in chunk.blocks)
    replicas = degrees.efsdp * degrees.dp_replicate if routed else 1
    widths = widths_of(job.plan)
    return max(degrees.batch, replicas) > 1 or widths.compute != widths.kept


def units(job: Job, chunk: Chunk) -> Iterator[Unit]:
    """What a stage gathers, on this rank's part of the tensor-parallel cut."""
    model, plan = job.model, job.plan
    degrees = degrees_of(plan)
    vocabulary = bool(plan.vocab_parallel)
    tied = model.tie_word_embeddings and chunk.is_last
    if chunk.is_first and not tied:
        embedding = embedding_weights(model, vocab_parallel=vocabulary)
        yield Unit(part="embedding", weights=_cut(embedding, degrees.tp), count=1)
    for block, count in layers_of(model, chunk):
        yield Unit(
            part="layers", weights=_cut(dense_weights(block, model), degrees.tp), count=count
        )
        if block.is_moe:
            experts = _experts(block, model.hidden_size, degrees)
            yield Unit(part="experts", weights=experts, count=count, axis="efsdp")
    if chunk.is_last:
        final = final_weights(model, vocab_parallel=vocabulary)
        yield Unit(part="head", weights=_cut(final, degrees.tp), count=1, stays=True)


def _cut(weights: list[Weight], size: int) -> tuple[Weight, ...]:
    return tuple(weight.on_rank(size) for weight in weights)


def _experts(block: Block, hidden_size: int, degrees: Degrees) -> tuple[Weight, ...]:
    """A rank's experts: rows dealt over ep, columns cut over etp."""
    found = (weight.on_rank(degrees.etp) for weight in expert_weights(block, hidden_size))
    return tuple(Weight(name=w.name, rows=w.rows // degrees.ep, columns=w.columns) for w in found)


def _of_unit(
    job: Job, chunk: Chunk, unit: Unit, *, degrees: Degrees, widths: Widths
) -> Iterator[Piece]:
    """Gathers, reductions and sums over replicas of one unit."""
    ranks = degrees.fsdp if unit.axis == "fsdp" else degrees.efsdp
    elements = sum(weight.padded(ranks) for weight in unit.weights)
    operands = {
        "elements": float(elements),
        "ranks": float(ranks),
        "units": float(unit.count),
        "passes": float(len(chunk.passes)),
    }
    if ranks > 1:
        yield Piece(
            axis=unit.axis,
            collective="all_gather",
            part=unit.part,
            calls=unit.count * gathers(job, chunk.passes, stays=unit.stays),
            call_bytes=elements * widths.compute,
            formula=f"units * gathers a step * padded elements * {widths.compute} B; a gather "
            "before every pass that finds the unit sharded",
            source=SOURCE,
            operands=operands,
        )
        yield Piece(
            axis=unit.axis,
            collective="reduce_scatter",
            part=unit.part,
            calls=unit.count * reductions(job, chunk.passes),
            call_bytes=elements * widths.reduce,
            formula=f"units * reductions a step * padded elements * {widths.reduce} B",
            source=SOURCE,
            operands=operands,
        )
    if degrees.dp_replicate > 1:
        yield Piece(
            axis="dp_replicate",
            collective="all_reduce",
            part=unit.part,
            calls=unit.count * reductions(job, chunk.passes),
            call_bytes=elements // ranks * widths.reduce,
            formula=f"units * reductions a step * padded elements / ranks * {widths.reduce} B",
            source=SOURCE,
            operands=operands,
        )


def gathers(job: Job, passes: str, *, stays: bool) -> int:
    """How often a unit is gathered in a step of these forward and backward passes.

    ZeRO-3 gives a unit up after its forward pass where the plan says so, and after its backward
    pass but in a pipeline, whose stages keep it (torch 2.13, pipelining/stage.py
    `backward_maybe_with_nosync`). ZeRO-1 and 2 gather once; schedules that split the backward pass
    keep units from forward to backward.
    """
    plan = job.plan
    sharded = int(plan.zero_stage) >= 3
    splits = definition_of(int(plan.schedule), vpp=int(plan.vpp)).splits_backward
    keeps = not plan.reshard_after_forward or (int(plan.pp) > 1 and splits)
    after_forward = sharded and not keeps and not stays
    after_backward = sharded and int(job.plan.pp) == 1
    count, held = 0, False
    for kind in passes:
        count += not held
        held = not (after_forward if kind == "F" else after_backward)
    return count


def reductions(job: Job, passes: str) -> int:
    """How often a unit's gradients are reduced: after every backward pass, or once a step."""
    every = int(job.plan.zero_stage) >= 2 and int(job.plan.pp) == 1
    return passes.count("B") if every else 1


def accumulates(job: Job, passes: str) -> bool:
    """Whether gradients wait for a later reduction, in whose format they are then kept."""
    return int(job.plan.pp) > 1 or passes.count("B") > reductions(job, passes)
