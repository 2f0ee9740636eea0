"""Gradients of one step under any plan: the model's stages, and the order they run in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from meshwright.plan.plan import Schedule
from meshwright.train.model.share import part_of
from meshwright.train.parallel import sharding, tensor
from meshwright.train.parallel.expert import expert_modules
from meshwright.train.parallel.pipeline import Pipeline, wide_dtype
from meshwright.train.stage import EMBEDDING, HEAD, canonical_name, shared_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor, nn

    from meshwright.train.assemble import Blueprint
    from meshwright.train.mesh import Mesh
    from meshwright.train.parallel.pipeline import Table
    from meshwright.train.stage import Stage


class Engine:
    """The stages of this rank and how a step runs through them.

    `counted` are parameters that count in the norm, each with the number of ranks that hold the
    same part of it.

    A micro-batch is a mapping of tensors on the engine's device: "tokens" and "labels" [b, s],
    "position_ids" [b, s] and, where rows are packed, "documents" [b, s]; s is this rank's slice.
    """

    def __init__(
        self,
        stages: list[Stage],
        mesh: Mesh,
        blueprint: Blueprint,
        *,
        device: torch.device,
        table: Table | None = None,
    ) -> None:
        self.stages = stages
        self.mesh = mesh
        self.blueprint = blueprint
        self.plan = blueprint.plan
        self.device = device
        self.table = table
        self.scale: Tensor | float = 1.0
        self._pipelines: dict[int, Pipeline] = {}
        self._named = [  # once: modules are walked slowly
            (shared_name(stage, name), parameter)
            for stage in stages
            for name, parameter in stage.named_parameters()
        ]
        self.counted = [(p, _holders(p, mesh)) for stage in stages for p in _own(stage)]

    @property
    def is_first(self) -> bool:
        """Whether this rank embeds tokens."""
        return any(stage.place.is_first for stage in self.stages)

    @property
    def is_last(self) -> bool:
        """Whether this rank has the loss."""
        return any(stage.place.is_last for stage in self.stages)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Trainable and frozen parameters of this rank under their names in transformers.

        A tied head on a stage of its own has the embedding's name; where both ends are on one
        rank (V schedules) that name comes twice.
        """
        return iter(self._named)

    def forward_backward(
        self,
        micro_batches: Sequence[dict[str, Tensor]],
        *,
        tokens: Tensor | float,
        loss_scale: float = 1.0,
    ) -> Tensor:
        """Accumulates the gradients of mean loss; this rank's share of the loss, a scalar.

        `tokens` is the number of labels that count in the whole global batch, over all ranks and
        micro-batches: gradients do not depend on how the batch is cut. Summed over the mesh's
        "batch" and "pp" axes the shares are the loss. `loss_scale` (fp16) multiplies gradients.
        """
        self.scale = loss_scale * self._means() / tokens
        total = (
            self._pipelined(micro_batches)
            if len(self.stages) > 1 or self.mesh.size("pp") > 1
            else self._accumulated(micro_batches)
        )
        self._finish_gradients()
        return total / (loss_scale * self._means())

    @torch.no_grad()
    def evaluate(self, micro_batches: Sequence[dict[str, Tensor]]) -> Tensor:
        """This rank's summed cross-entropy of the micro-batches, without gradients."""
        self.scale = 1.0
        if len(self.stages) > 1 or self.mesh.size("pp") > 1:
            losses = self._pipeline(len(micro_batches)).evaluate(**_stacked(micro_batches))
            return losses.sum().to(self.device, self.wide)
        return torch.stack([self._loss(batch) for batch in micro_batches]).sum()

    @property
    def wide(self) -> torch.dtype:
        """What losses and norms are summed in."""
        return wide_dtype(self.blueprint.numbers.compute)

    def _means(self) -> float:
        """By how much FSDP2 divides the sum of gradients."""
        return float(self.mesh.size("batch"))

    def _accumulated(self, micro_batches: Sequence[dict[str, Tensor]]) -> Tensor:
        """One stage, one micro-batch after the other."""
        total = torch.zeros((), device=self.device, dtype=self.wide)
        for index, batch in enumerate(micro_batches):
            is_last = index == len(micro_batches) - 1
            sharding.before_microbatch(self.stages[0], self.plan, is_last=is_last)
            loss = self._loss(batch) * self.scale
            loss.backward()
            total = total + loss.detach()
        return total

    def _loss(self, batch: dict[str, Tensor]) -> Tensor:
        return self.stages[0](batch["tokens"], **_inputs(batch)).sum()

    def _pipelined(self, micro_batches: Sequence[dict[str, Tensor]]) -> Tensor:
        losses = self._pipeline(len(micro_batches)).step(**_stacked(micro_batches))
        return losses.sum().to(self.device, self.wide)

    def _pipeline(self, count: int) -> Pipeline:
        """The schedule for so many micro-batches, made once."""
        if count not in self._pipelines:
            self._pipelines[count] = Pipeline(
                self.stages,
                self.mesh,
                self.plan,
                microbatches=count,
                hidden=self._hidden(),
                device=self.device,
                loss=lambda loss, _: loss.sum() * self.scale,
                table=self.table,
            )
        return self._pipelines[count]

    def _hidden(self) -> Tensor:
        """An example of what travels between stages, on meta."""
        length: int = self.stages[0].slices.positions.numel()
        if self.mesh.size("tp") > 1 and self.plan.sequence_parallel:
            length //= self.mesh.size("tp")
        return torch.empty(
            int(self.plan.micro_batch_size),
            length,
            self.blueprint.config.hidden_size,
            dtype=self.blueprint.numbers.compute,
            device="meta",
            requires_grad=True,
        )

    def _finish_gradients(self) -> None:
        """What FSDP2 does not do: partial sums, experts' means, a tied weight on two stages."""
        if self.mesh.size("tp") > 1:
            tensor.reduce_gradients(p for stage in self.stages for p in stage.parameters())
        scale = sharding.expert_gradient_scale(self.mesh)
        if scale != 1.0:
            grads = [p.grad for module in self._experts() for p in module.parameters()]
            for grad in grads:
                if grad is not None:
                    part_of(grad).mul_(scale)
        if self.blueprint.config.tie_word_embeddings and self._stages_in_all() > 1:
            self._sum_tied()

    def _experts(self) -> list[nn.Module]:
        return [module for stage in self.stages for module in expert_modules(stage)]

    def _stages_in_all(self) -> int:
        return self.stages[0].place.stages

    def _sum_tied(self) -> None:
        """Adds the gradients of embedding and head, which are one weight on two stages."""
        ends = {
            name: dict(stage.named_parameters())
            for stage in self.stages
            for name in (EMBEDDING, HEAD)
            if (stage.place.is_first if name == EMBEDDING else stage.place.is_last)
        }
        mine = [part_of(p["lm." + name].grad) for name, p in ends.items() if _trains(p, name)]
        if len(mine) == 2:  # both ends on this rank
            total = mine[0] + mine[1]
            mine[0].copy_(total)
            mine[1].copy_(total)
        elif mine and not self._both_ends_on_one_rank():
            mine[0].add_(self._exchanged(mine[0]))

    def _both_ends_on_one_rank(self) -> bool:
        return int(self.plan.schedule) in (Schedule.ZB_V, Schedule.V_HALF, Schedule.DUALPIPE_V)

    def _exchanged(self, mine: Tensor) -> Tensor:
        """The other end's gradient: first and last pipeline rank swap theirs."""
        group = self.mesh.group("pp")
        other = self.mesh.size("pp") - 1 if self.mesh.rank("pp") == 0 else 0
        peer = dist.get_global_rank(group, other)
        theirs = torch.empty_like(mine)
        ops = [
            dist.P2POp(dist.isend, mine.contiguous(), peer, group=group),
            dist.P2POp(dist.irecv, theirs, peer, group=group),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return theirs


def _own(stage: Stage) -> Iterator[nn.Parameter]:
    """Parameters of a stage, without a tied head that lies apart: it is the embedding's."""
    tied = bool(stage.lm.config.tie_word_embeddings)
    alone = tied and stage.place.is_last and not stage.place.is_first
    for name, parameter in stage.named_parameters():
        if not (alone and canonical_name(name) == HEAD):
            yield parameter


def _holders(parameter: nn.Parameter, mesh: Mesh) -> float:
    """Ranks of the parameter's pipeline stage that hold the same part of it."""
    ranks = mesh.degrees.world_size / mesh.degrees.pp
    if not isinstance(parameter, DTensor):
        return ranks
    parts = 1
    for size, placement in zip(parameter.device_mesh.shape, parameter.placements, strict=True):
        parts *= 1 if isinstance(placement, Replicate) else size
    return ranks / parts


def _trains(parameters: dict[str, nn.Parameter], name: str) -> bool:
    """Whether the weight at an end of the model is trained: beside adapters it is frozen."""
    return bool(parameters["lm." + name].requires_grad)


def _inputs(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: t for n, t in batch.items() if n != "tokens" and t is not None}


def _stacked(micro_batches: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """The micro-batches as one, along dim 0; torch's schedules cut it again."""
    names = [n for n, t in micro_batches[0].items() if t is not None]
    stacked: dict[str, Any] = {n: torch.cat([b[n] for b in micro_batches]) for n in names}
    return {"tokens": None, "labels": None} | stacked
