"""Pipeline parallelism: which stages a rank holds, and torch's schedules or our own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from meshwright.base.errors import MeshwrightError
from meshwright.cost.schedules import Kind, definition_of, operations
from meshwright.cost.schedules.placement import stage_of as stage_at
from meshwright.plan.plan import Schedule
from meshwright.plan.stages import chunk_layers, chunks_per_rank
from meshwright.train.adapters import pipelining
from meshwright.train.stage import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from meshwright.model.architecture import Model
    from meshwright.plan.plan import Plan
    from meshwright.train.mesh import Mesh
    from meshwright.train.stage import Stage

Table = tuple[tuple[tuple[int, str, int], ...], ...]
_LETTER = {
    Kind.FORWARD: "F",
    Kind.BACKWARD: "I",
    Kind.WEIGHT: "W",
    Kind.FULL_BACKWARD: "B",
}
_TORCH = {  # (schedule, several chunks a rank): torch's own
    (Schedule.GPIPE, False): "GPipe",
    (Schedule.GPIPE, True): "LoopedBFS",
    (Schedule.ONE_F_ONE_B, False): "1F1B",
    (Schedule.ONE_F_ONE_B, True): "Interleaved1F1B",
    (Schedule.ZB_H1, True): "InterleavedZeroBubble",
    (Schedule.ZB_V, True): "ZBVZeroBubble",
    (Schedule.DUALPIPE_V, True): "DualPipeV",
}


def places_of(model: Model, plan: Plan, *, pp_rank: int) -> tuple[Place, ...]:
    """The stages that a pipeline rank holds, in the order of the model."""
    pp, chunks = int(plan.pp), int(chunks_per_rank(plan))
    placement = definition_of(int(plan.schedule), vpp=int(plan.vpp)).placement
    counts = chunk_layers(model, plan)
    bounds = [sum(counts[:i]) for i in range(len(counts) + 1)]
    held = (int(stage_at(placement, pp=pp, rank=pp_rank, chunk=chunk)) for chunk in range(chunks))
    return tuple(
        Place(
            index=index,
            stages=len(counts),
            first_layer=bounds[index],
            last_layer=bounds[index + 1],
        )
        for index in sorted(held)
    )


def torch_schedule(plan: Plan) -> str | None:
    """The name of torch's schedule for a plan, None where our own table is run."""
    several = int(chunks_per_rank(plan)) > 1
    return _TORCH.get((Schedule(int(plan.schedule)), several))


def table_of(plan: Plan, *, microbatches: int) -> Table:
    """The plan's schedule as our simulator has it: by rank (stage, kind, micro-batch)."""
    pp, vpp = int(plan.pp), int(plan.vpp)
    if int(plan.schedule) == Schedule.DUALPIPE:
        raise MeshwrightError(
            "DualPipe holds every layer twice, which this engine does not",
            hint='set plan.schedule = "dualpipe-v", the same order with one copy',
        )
    placement = definition_of(int(plan.schedule), vpp=vpp).placement
    rows = operations(Schedule(int(plan.schedule)), pp=pp, vpp=vpp, num_microbatches=microbatches)
    return tuple(
        tuple(
            (
                int(stage_at(placement, pp=pp, rank=rank, chunk=op.chunk)),
                _LETTER[Kind(op.kind)],
                op.microbatch,
            )
            for op in row
        )
        for rank, row in enumerate(rows)
    )


def plain_table(plan: Plan, *, microbatches: int) -> Table:
    """All forward passes of a rank, stage after stage, then all backward ones."""
    placement = definition_of(int(plan.schedule), vpp=int(plan.vpp)).placement
    pp, chunks = int(plan.pp), range(int(chunks_per_rank(plan)))
    held = [
        sorted(int(stage_at(placement, pp=pp, rank=rank, chunk=chunk)) for chunk in chunks)
        for rank in range(pp)
    ]
    return tuple(
        tuple(
            (stage, kind, micro)
            for kind, order in (("F", row), ("B", row[::-1]))
            for stage in order
            for micro in range(microbatches)
        )
        for row in held
    )


class Pipeline:
    """A schedule over the stages of this rank.

    `loss` turns what the last stage returns for one micro-batch into what is differentiated.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        mesh: Mesh,
        plan: Plan,
        *,
        microbatches: int,
        hidden: Tensor,
        device: torch.device,
        loss: Callable[[Tensor, Tensor], Tensor],
        table: Table | None = None,
    ) -> None:
        self.has_first = any(stage.place.is_first for stage in stages)
        self.has_last = any(stage.place.is_last for stage in stages)
        self.microbatches = microbatches
        wrapped = [_torch_stage(s, mesh, hidden=hidden, device=device) for s in stages]
        self._made_of = (plan, wrapped, loss)
        self._forward: Any = None
        name = None if table else torch_schedule(plan)
        if name is None:
            rows = table or table_of(plan, microbatches=microbatches)
            self.schedule = pipelining.tabled_schedule(
                rows, wrapped, microbatches=microbatches, loss=loss
            )
        else:
            self.schedule = pipelining.named_schedule(
                name, wrapped, microbatches=microbatches, loss=loss
            )

    def step(self, tokens: Tensor | None, labels: Tensor | None, **inputs: Tensor) -> Tensor:
        """Runs all micro-batches, stacked along dim 0; the losses, shape [microbatches] or [0]."""
        losses: list[Tensor] = []
        self.schedule.step(*self._given(tokens), **self._rest(labels, losses, inputs))
        return _joined(losses)

    def evaluate(self, tokens: Tensor | None, labels: Tensor | None, **inputs: Tensor) -> Tensor:
        """The losses without gradients."""
        losses: list[Tensor] = []
        rest = self._rest(labels, losses, inputs)
        rest.pop("return_outputs")
        self._evaluating().eval(*self._given(tokens), **rest)
        return _joined(losses)

    def _evaluating(self) -> Any:
        """The schedule for `evaluate`.

        torch 2.13 takes a step of a schedule without its backward passes, but not where neighboring
        stages are on one rank, as in a V: their gradients are handed over all the same.
        """
        plan, wrapped, loss = self._made_of
        if len(wrapped) == 1:
            return self.schedule
        if self._forward is None:
            rows = plain_table(plan, microbatches=self.microbatches)
            self._forward = pipelining.tabled_schedule(
                rows, wrapped, microbatches=self.microbatches, loss=loss, forward_only=True
            )
        return self._forward

    def _given(self, tokens: Tensor | None) -> tuple[Tensor, ...]:
        return (tokens,) if self.has_first and tokens is not None else ()

    def _rest(
        self, labels: Tensor | None, losses: list[Tensor], inputs: dict[str, Tensor]
    ) -> dict[str, Any]:
        rest: dict[str, Any] = {**inputs, "return_outputs": False}
        if self.has_last:
            rest |= {"target": labels, "labels": labels, "losses": losses}
        return rest


def _joined(losses: list[Tensor]) -> Tensor:
    """The losses in one tensor, which is empty on ranks without the last stage."""
    return torch.stack([x.detach().reshape(()) for x in losses]) if losses else torch.zeros(0)


def wide_dtype(compute: torch.dtype) -> torch.dtype:
    """What losses are summed in."""
    return torch.float64 if compute is torch.float64 else torch.float32


def _torch_stage(stage: Stage, mesh: Mesh, *, hidden: Tensor, device: torch.device) -> Any:
    """The stage for torch, with examples of what it takes and gives."""
    batch, length = hidden.shape[0], stage.slices.positions.numel()
    ids = torch.empty(batch, length, dtype=torch.long, device="meta")
    loss = torch.empty(1, dtype=wide_dtype(hidden.dtype), device="meta", requires_grad=True)
    return pipelining.stage_of(
        stage,
        index=stage.place.index,
        stages=stage.place.stages,
        device=device,
        group=mesh.group("pp"),
        takes=ids if stage.place.is_first else hidden,
        gives=loss if stage.place.is_last else hidden,
    )
